"""Fine-tunes BERT to tag words, such as with the kinds of entity they name; evaluates and predicts.

    python -m bert.run_tagging --data_dir=conll --output_dir=out/ner --do_train --do_eval --do_predict \
        --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=bert_model.ckpt

Files have a word and its tag on each line, and a blank line between sentences. It writes test_predictions.txt, the
words of the test file with their tags.
"""

import pathlib
import sys

if not __package__:  # run as a file
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])
    import bert  # noqa: F401, first, since TensorFlow reads what it sets when it is loaded

import collections
import dataclasses
import os
import time

import tensorflow.compat.v1 as tf
from absl import flags, logging

from bert import files, finetuning_flags, finetuning_run, program, split_flags, training_flags
from bert.data import finetuning_input
from bert.errors import InputError
from bert.tasks import results, tagging
from bert.training import checkpoints, evaluations, finetuning, run_folder, run_record

FLAGS = flags.FLAGS

finetuning_flags.define()
split_flags.define_files()
split_flags.define_use()
training_flags.define_evaluation(None, "Metric by which checkpoints are compared. Default: f1, or eval_accuracy.")
flags.DEFINE_string("data_dir", None, "Folder with train.txt, dev.txt and test.txt (or .tsv, .conll).")
flags.DEFINE_integer("max_seq_length", 128, "Tokens in a record; a longer sentence is cut into several.", lower_bound=3)

PREDICTIONS_FILE = "test_predictions.txt"


@dataclasses.dataclass(frozen=True)
class Split:
    """The records of a file, and, unless they are to train on, its sentences."""

    data: finetuning_input.Data
    sentences: list


def main():
    """Checks everything that can be checked, then trains, evaluates and tags."""
    if not (FLAGS.do_train or FLAGS.do_eval or FLAGS.do_predict):
        raise InputError("Nothing to do: give --do_train, --do_eval or --do_predict, one or several.")
    finetuning_flags.check_evaluation(FLAGS, "do_eval")
    with finetuning_run.output_folder(FLAGS, ("output_dir", "init_checkpoint"), avoids_padding=True) as options:
        _run(options)


def _run(options):
    """Does what main() says, while it has the output folder to itself."""
    model = finetuning_flags.find_model(FLAGS, FLAGS.max_seq_length)
    sources = _find_sources()
    tags = _tags(sources)
    entities = tagging.are_entities(tags)
    settings = {
        "task": results.TAGGING,
        "labels": list(tags),
        "best_metric": _best_metric(entities),
        "do_lower_case": model.do_lower_case,
        "max_seq_length": FLAGS.max_seq_length,
    }
    results.check_settings(FLAGS.output_dir, settings)
    # The loss does not depend on the pooler.
    trainer = finetuning_run.make_trainer(
        FLAGS, options, model, finetuning.tagger(len(tags)), _spec(), trains_pooler=False
    )
    encoder = tagging.Encoder(model.vocab_file, model.do_lower_case, FLAGS.max_seq_length, tags)
    splits = {split: _make_records(split, source, encoder, tags) for split, source in sources.items()}
    schedule = finetuning_flags.schedule(FLAGS, splits["train"].data.count if FLAGS.do_train else None)
    with finetuning_run.recorded(FLAGS, "run_tagging", model, trainer, schedule, settings) as record:
        summary = {}
        if FLAGS.do_train:
            summary = finetuning_run.train(
                FLAGS,
                trainer,
                schedule,
                splits["train"].data,
                record,
                settings["best_metric"],
                lambda: _evaluate(trainer, encoder, splits["dev"], tags, entities),
            )
        if FLAGS.do_eval:
            summary["eval_data"] = splits["dev"].data.fingerprints
            known = finetuning_run.known_results(FLAGS, record, summary, summary["eval_data"])
            summary["eval_metrics"] = known or _report_evaluation(trainer, encoder, splits["dev"], tags, entities)
        if summary:
            run_record.update_summary(FLAGS.output_dir, summary)
        if FLAGS.do_predict:
            _predict(trainer, encoder, splits["test"], sources["test"], tags, entities)


def tpu_plan(device):
    """What the flags train on a TPU, for `bert.preflight_tpu`: a `Finetuner`, and a `Stretch` without data."""
    tags = _find_tags(FLAGS.train_file or tagging.find(FLAGS.data_dir, "train"))
    return finetuning_flags.tpu_plan(FLAGS, device, lambda config: finetuning.tagger(len(tags)), _spec())


def _best_metric(entities):
    """The metric by which checkpoints are compared."""
    known = ["eval_loss", "eval_accuracy", *["precision", "recall", "f1"] * entities]
    training_flags.check_best_metric(FLAGS, known)
    return FLAGS.best_metric or ("f1" if entities else "eval_accuracy")


def _find_sources():
    """The files of all splits that are wanted, a dict."""
    wanted = split_flags.wanted(FLAGS)
    return {split: file or tagging.find(FLAGS.data_dir, split) for split, file in wanted.items()}


def _find_tags(source):
    return tagging.find_tags(source, tagging.read(source, encoding=FLAGS.input_encoding))


def _tags(sources):
    """The tags: those of the training set, or of the training whose folder this is."""
    if "train" in sources:
        return _find_tags(sources["train"])
    tags = tuple(results.read_settings(FLAGS.output_dir).get("labels", ()))
    if not tags:
        raise InputError(f"--output_dir={FLAGS.output_dir} has no {results.SETTINGS_FILE} that tells the tags.")
    return tags


def _spec():
    spec = finetuning.sequence_spec(FLAGS.max_seq_length)
    return {**spec, "label_ids": tf.FixedLenFeature([FLAGS.max_seq_length], tf.int64)}


def _make_records(split, source, encoder, tags):
    """Makes the records of a split, and logs how much there is, how long, and how the tags are distributed."""
    output = os.path.join(FLAGS.output_dir, f"{split}.tf_record")
    known = tags if split == "dev" else None
    sentences = tagging.read(source, tagged=split != "test", encoding=FLAGS.input_encoding, known=known)
    if split != "train":
        sentences = list(sentences)
    made = encoder.make_records(sentences, source, output, FLAGS.input_encoding)
    logging.info(
        "%s: %d sentences, %d words, %.1f tokens a record on average, %d sentences cut into several records",
        split,
        made["sentences"],
        made["words"],
        made["tokens"] / made["count"],
        made["cut"],
    )
    if made["tags"]:
        counts = collections.Counter(made["tags"]).most_common(12)
        shares = (f"{tag} {100 * count / made['words']:.1f} %" for tag, count in counts)
        logging.info("%s: %s", split, ", ".join(shares))
    spec = _spec()
    data = finetuning_input.Data((output,), (made["count"],), spec, tuple(spec))
    return Split(data, [] if split == "train" else sentences)


def _choose(trainer, encoder, split, tags, batch_size):
    outputs = trainer.outputs(split.data, batch_size)
    chosen = tagging.choose(split.sentences, encoder.windows(split.sentences), outputs["choice"], tags)
    return chosen, outputs["loss"]


def _evaluate(trainer, encoder, split, tags, entities, shown=None):
    """Evaluates the newest checkpoint: a dict of metrics; `shown` gets the `tagging.details` if it is given."""
    start = time.monotonic()
    chosen, losses = _choose(trainer, encoder, split, tags, FLAGS.eval_batch_size)
    found = {
        "eval_loss": float(losses.mean()),
        **tagging.scores([sentence.tags for sentence in split.sentences], chosen, entities),
    }
    if shown is not None:
        shown.update(tagging.details(split.sentences, chosen, tags))
    step = checkpoints.latest(FLAGS.output_dir)[1]
    rate = split.data.count / (time.monotonic() - start)
    evaluations.write_events(FLAGS.output_dir, step, {**found, "examples_per_second": rate})
    return {**found, "loss": found["eval_loss"], "global_step": step}


def _report_evaluation(trainer, encoder, split, tags, entities):
    """Evaluates, and writes and logs the results."""
    shown = {}
    found = _evaluate(trainer, encoder, split, tags, entities, shown)
    run_record.write_json(os.path.join(FLAGS.output_dir, run_folder.DETAILS_FILE), {"": shown})
    run_record.write_results(FLAGS.output_dir, found)
    return found


def _predict(trainer, encoder, split, source, tags, entities):
    """Tags the test set, and writes it."""
    chosen, _ = _choose(trainer, encoder, split, tags, FLAGS.predict_batch_size)
    path = os.path.join(FLAGS.output_dir, PREDICTIONS_FILE)
    with files.atomic_write(path, "w") as f:
        f.writelines(tagging.rows_with_tags(source, chosen, FLAGS.input_encoding))
    logging.info("wrote %s: %d sentences", path, len(chosen))
    if all(tag in tags for sentence in split.sentences for tag in sentence.tags):
        scores = tagging.scores([sentence.tags for sentence in split.sentences], chosen, entities)
        logging.info("test: %s", ", ".join(f"{name} = {value:.4f}" for name, value in sorted(scores.items())))


if __name__ == "__main__":
    program.run(main, required=["output_dir"])
