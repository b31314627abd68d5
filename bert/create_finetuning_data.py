"""Makes records for fine-tuning, and the meta data that bert.run_classifier reads with --input_meta_data_path.

python -m bert.create_finetuning_data --classification_task_name=MRPC --input_data_dir=glue/MRPC \
        --vocab_file=vocab.txt --meta_data_file_path=mrpc_meta_data \
        --train_data_output_path=mrpc_train.tf_record --eval_data_output_path=mrpc_eval.tf_record
"""

import pathlib
import sys

if not __package__:  # run as a file
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from absl import flags, logging

from bert import program, task_flags, tokenization
from bert.errors import InputError
from bert.tasks import features, prepared, task
from bert.training import run_record

FLAGS = flags.FLAGS

task_flags.define()
flags.DEFINE_enum("fine_tuning_task_type", "classification", ["classification", "regression"], "Kind of the task.")
flags.DEFINE_string("vocab_file", None, "Vocabulary.")
flags.DEFINE_string("train_data_output_path", None, "Where the records of the training set go.")
flags.DEFINE_string("eval_data_output_path", None, "Where the records of the dev set go.")
flags.DEFINE_string("test_data_output_path", None, "Where the records of the test set go.")
flags.DEFINE_string("meta_data_file_path", None, "Where the meta data goes.")
flags.DEFINE_enum("mnli_type", "matched", ["matched", "mismatched"], "Which dev and test set of MNLI is meant.")
flags.DEFINE_enum("tokenization", "WordPiece", ["WordPiece"], "Tokenizer.")
flags.DEFINE_alias("input_data_dir", "data_dir")
flags.DEFINE_alias("classification_task_name", "task_name")


def main():
    """Makes the records of each split whose path is given, then the meta data."""
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
    given = FLAGS.do_lower_case if FLAGS["do_lower_case"].present else None
    do_lower_case = features.check_case(tokenization.load_vocab(FLAGS.vocab_file), FLAGS.vocab_file, given)
    sizes = {}
    for split, (output, source, entry) in outputs.items():
        if output:
            part = "mismatched" if FLAGS.mnli_type == "mismatched" and "mismatched" in of.parts(split) else ""
            source = source or of.find(FLAGS.data_dir, split, part)
            made = features.write(of, source, split, output, FLAGS.vocab_file, do_lower_case, FLAGS.max_seq_length)
            features.log_description(made, of, split, FLAGS.max_seq_length)
            sizes[entry] = made.count
    run_record.write_json(FLAGS.meta_data_file_path, prepared.meta_data(of, FLAGS.max_seq_length, sizes))
    logging.info("wrote %s", FLAGS.meta_data_file_path)


if __name__ == "__main__":
    program.run(main, required=["vocab_file", "meta_data_file_path"])
