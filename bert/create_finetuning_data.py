"""Makes records for fine-tuning, and the meta data that goes with them: for bert.run_classifier and bert.run_squad.

python -m bert.create_finetuning_data --classification_task_name=MRPC --input_data_dir=glue/MRPC \
        --vocab_file=vocab.txt --meta_data_file_path=mrpc_meta_data \
        --train_data_output_path=mrpc_train.tf_record --eval_data_output_path=mrpc_eval.tf_record
python -m bert.create_finetuning_data --fine_tuning_task_type=squad --squad_data_file=train-v1.1.json \
        --vocab_file=vocab.txt --meta_data_file_path=squad_meta_data --train_data_output_path=squad_train.tf_record \
        --max_seq_length=384
"""

import pathlib
import sys

if not __package__:  # run as a file
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import os

from absl import flags, logging

from bert import files, finetuning_flags, program, task_flags
from bert.errors import InputError
from bert.tasks import features, prepared, squad, task
from bert.training import run_record

FLAGS = flags.FLAGS

task_flags.define()
flags.DEFINE_enum(
    "fine_tuning_task_type", "classification", ["classification", "regression", "squad"], "Kind of the task."
)
flags.DEFINE_string("vocab_file", None, "Vocabulary.")
flags.DEFINE_string("train_data_output_path", None, "Where the records of the training set go.")
flags.DEFINE_string("eval_data_output_path", None, "Where the records of the dev set go.")
flags.DEFINE_string("test_data_output_path", None, "Where the records of the test set go.")
flags.DEFINE_string("meta_data_file_path", None, "Where the meta data goes.")
flags.DEFINE_enum("mnli_type", "matched", ["matched", "mismatched"], "Which dev and test set of MNLI is meant.")
flags.DEFINE_string("squad_data_file", None, "For squad: questions to train on, in SQuAD's JSON.")
flags.DEFINE_string("translated_squad_data_folder", None, "For squad: folder of more such files, *.json.")
flags.DEFINE_integer("doc_stride", 128, "For squad: as of bert.run_squad.", lower_bound=1)
flags.DEFINE_integer("max_query_length", 64, "For squad: as of bert.run_squad.", lower_bound=1)
flags.DEFINE_bool("version_2_with_negative", False, "For squad: as of bert.run_squad.")
flags.DEFINE_enum("tokenization", "WordPiece", ["WordPiece"], "Tokenizer.")
flags.DEFINE_alias("input_data_dir", "data_dir")
flags.DEFINE_alias("classification_task_name", "task_name")


def main():
    """Makes the records, then the meta data."""
    make = _make_squad if FLAGS.fine_tuning_task_type == "squad" else _make_sentences
    run_record.write_json(FLAGS.meta_data_file_path, make())
    logging.info("wrote %s", FLAGS.meta_data_file_path)


def _make_squad():
    """Makes the records of questions to train on; returns their meta data."""
    if not (FLAGS.squad_data_file and FLAGS.train_data_output_path):
        raise InputError("--squad_data_file and --train_data_output_path are needed: the questions, and their records.")
    sources = [FLAGS.squad_data_file]
    if FLAGS.translated_squad_data_folder:
        pattern = os.path.join(FLAGS.translated_squad_data_folder, "*.json")
        sources += files.expand_globs(pattern, "translated_squad_data_folder")
    lengths = {name: FLAGS[name].value for name in ("max_seq_length", "doc_stride", "max_query_length")}
    encoder = squad.Encoder(FLAGS.vocab_file, finetuning_flags.find_case(FLAGS, FLAGS.vocab_file), **lengths)
    made = encoder.make_records(sources, FLAGS.train_data_output_path, True, FLAGS.version_2_with_negative)
    logging.info("train: %d questions in %d windows", made["questions"], made["count"])
    return {
        "task_type": prepared.SQUAD,
        "train_data_size": made["count"],
        **lengths,
        "version_2_with_negative": FLAGS.version_2_with_negative,
    }


def _make_sentences():
    """Makes the records of each split whose path is given; returns their meta data."""
    if FLAGS.task_name is None:
        FLAGS.task_name = "MNLI"
    if not FLAGS["xnli_language"].present:
        FLAGS.xnli_language = "en"
    outputs = {
        "train": (FLAGS.train_data_output_path, FLAGS.train_file, "train_data_size"),
        "dev": (FLAGS.eval_data_output_path, FLAGS.eval_file, "eval_data_size"),
        "test": (FLAGS.test_data_output_path, FLAGS.predict_file, "test_data_size"),
    }
    if not any(output for output, *_ in outputs.values()):
        raise InputError("Nothing to do: give --train_data_output_path, --eval_data_output_path, or both.")
    of = task_flags.make_task(FLAGS, training=True, output_dir=None)
    if (FLAGS.fine_tuning_task_type == "regression") != (of.label_kind == task.REGRESSION) and of.name != "sts-b":
        raise InputError(
            f"--fine_tuning_task_type={FLAGS.fine_tuning_task_type} does not fit task {of.name}, whose labels are of "
            f"the kind {of.label_kind!r}."
        )
    do_lower_case = finetuning_flags.find_case(FLAGS, FLAGS.vocab_file)
    sizes = {}
    for split, (output, source, entry) in outputs.items():
        if output:
            part = "mismatched" if FLAGS.mnli_type == "mismatched" and "mismatched" in of.parts(split) else ""
            source = source or of.find(FLAGS.data_dir, split, part)
            made = features.write(of, source, split, output, FLAGS.vocab_file, do_lower_case, FLAGS.max_seq_length)
            features.log_description(made, of, split, FLAGS.max_seq_length)
            sizes[entry] = made.count
    return prepared.meta_data(of, FLAGS.max_seq_length, sizes)


if __name__ == "__main__":
    program.run(main, required=["vocab_file", "meta_data_file_path"])
