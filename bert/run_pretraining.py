"""Pretrains BERT with masked LM and next sentence prediction, from records or straight from text.

    python -m bert.run_pretraining --input_file='corpus/*.txt' --output_dir=out/mine --do_train --do_eval \
        --bert_config_file=bert_config.json --train_batch_size=32 --num_train_steps=10000 --learning_rate=1e-4

Run again, it resumes where it was. A recipe (--recipe=bert-base) sets flags that are not given.
"""

import pathlib
import sys

if not __package__:  # run as a file
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import dataclasses
import hashlib
import math
import os

from absl import flags, logging

from bert import configs, files, modeling, program, text_flags, tokenization, training_flags
from bert.data import dynamic_masking, packed_masking, packing, pretraining_data, pretraining_source
from bert.errors import Checked, InputError
from bert.training import (
    baselines,
    checkpoint_formats,
    checkpoints,
    evaluations,
    locking,
    preflight,
    pretraining,
    recipes,
    run_record,
)
from bert.training.trainer import Schedule, Stretch

FLAGS = flags.FLAGS

training_flags.define()

# What is trained, and on what.
flags.DEFINE_string(
    "bert_config_file",
    None,
    "Model shape: a bert_config.json, or a name in bert/configs/models.json such as bert-mini (whose vocabulary "
    "size is then that of the vocabulary).",
)
flags.DEFINE_string(
    "input_file",
    None,
    "Comma-separated globs of record files, or of text files, which are tokenized and masked first. "
    "{max_seq_length} in it stands for the length of each phase.",
)
flags.DEFINE_string("eval_file", None, "As --input_file, for evaluation. Default: documents held out of the text.")
flags.DEFINE_string(
    "init_checkpoint",
    None,
    "Checkpoint to start from, if output_dir has none yet, in any form that docs/formats.md names. Its config and "
    "vocabulary are the defaults then.",
)
flags.DEFINE_string("recipe", None, "A name in bert/configs/recipes, or a JSON file: sets flags that are not given.")
flags.DEFINE_integer("max_seq_length", 128, "Length of the records' sequences.", lower_bound=1)
flags.DEFINE_integer("max_predictions_per_seq", 20, "Number of predictions in a record.", lower_bound=1)

# What to do, and how long.
flags.DEFINE_bool("do_train", False, "Whether to train.")
flags.DEFINE_bool("do_eval", False, "Whether to evaluate.")
flags.DEFINE_integer("eval_batch_size", 8, "Examples per evaluation step, over all cores.", lower_bound=1)
flags.DEFINE_integer("num_train_steps", 100000, "Steps of the whole training.", lower_bound=1)
flags.DEFINE_integer("num_warmup_steps", 10000, "Steps over which the learning rate rises.", lower_bound=0)
flags.DEFINE_integer(
    "max_eval_steps",
    100,
    "At most so many evaluation steps. Unless it is given, --eval_file and held-out documents are evaluated whole.",
    lower_bound=1,
)
training_flags.define_evaluation(
    "loss", "Metric by which checkpoints are compared: less is better if it is a loss, else more."
)

# Text to records.
flags.DEFINE_string("vocab_file", None, "Vocabulary. Default: vocab.txt beside bert_config.json.")
flags.DEFINE_integer("vocab_size", None, "Without a vocabulary: train one of this size from the text.", lower_bound=100)
flags.DEFINE_string("records_dir", None, "Where records made from text are kept. Default: output_dir/records.")
flags.DEFINE_float(
    "held_out_fraction",
    0.02,
    "Share of the text's documents that is kept from training for evaluation, unless --eval_file is given.",
    lower_bound=0.0,
    upper_bound=0.9,
)
text_flags.define()

# The TF 2 model garden's flags.
flags.DEFINE_alias("input_files", "input_file")
flags.DEFINE_integer(
    "num_train_epochs",
    3,
    "If it or --num_steps_per_epoch is given, their product is --num_train_steps: an epoch is no pass over the data.",
    lower_bound=1,
)
flags.DEFINE_integer("num_steps_per_epoch", 1000, "See --num_train_epochs.", lower_bound=1)
flags.DEFINE_float("warmup_steps", None, "As --num_warmup_steps.", lower_bound=0.0)


def main():
    """Checks everything that can be checked, then trains and evaluates."""
    recipe_phases, config_changes = _apply_recipe()
    _check_flags()
    paths = ("output_dir", "input_file", "eval_file", "records_dir", "init_checkpoint")
    device = training_flags.choose_training_device(FLAGS, paths)
    with locking.hold(FLAGS.output_dir) as check:
        init, config_is_its = _find_initial()
        _run(device, recipe_phases, _load_config({} if config_is_its else config_changes), init, check)
    logging.info("done: %s", FLAGS.output_dir)


def _run(device, recipe_phases, config, init, check):
    """Does what main() says, while it has the output folder to itself."""
    source = pretraining_source.Source(
        FLAGS.input_file,
        FLAGS.eval_file,
        vocab_file=_vocab_file(),
        vocab_size=FLAGS.vocab_size,
        settings=text_flags.settings(FLAGS, random_seed=FLAGS.seed),
        folder=FLAGS.records_dir or os.path.join(FLAGS.output_dir, "records"),
        held_out_fraction=FLAGS.held_out_fraction,
        num_workers=FLAGS.num_workers,
    )
    _fit_vocabulary(config, source.vocab_file)
    schedule = _schedule()
    phases = recipes.split_steps(recipe_phases, FLAGS.num_train_steps, schedule)
    for phase in phases:
        preflight.check_config(config, phase.max_seq_length)
    preflight.check_output_dir(FLAGS.output_dir, config, source.vocab_file)
    checkpoints.recover(FLAGS.output_dir, pretraining.variable_shapes(config))
    init_checkpoint = _init_checkpoint(init, config)
    if FLAGS.check_only and source.is_text:  # of which to make records takes its time
        raise Checked
    training_phases = [
        _with_files(phase, source.training_files, "input_file", config, _masking(phase, source), FLAGS.pack_sequences)
        for phase in phases
    ]
    evaluation = _evaluation_phase(phases, source, config) if FLAGS.do_eval else None
    on_the_way = _evaluations_on_the_way(phases, source, config) if FLAGS.eval_every else {}

    trainer = _trainer(config, device, init_checkpoint, check)
    if FLAGS.check_only:
        raise Checked
    preflight.claim_output_dir(FLAGS.output_dir, config, source.vocab_file)
    with run_record.RunRecord(FLAGS.output_dir, "run_pretraining", program.flag_values()) as record:
        record.update(
            device=device.description,
            seed=FLAGS.seed,
            settings={
                "model": config.to_dict(),
                **dataclasses.asdict(schedule),
                "phases": [
                    {
                        "last_step": phase.last_step,
                        "max_seq_length": phase.max_seq_length,
                        "train_batch_size": phase.schedule.train_batch_size,
                        "learning_rate": phase.schedule.learning_rate,
                    }
                    for phase in training_phases
                ],
                "init_checkpoint": init_checkpoint,
            },
        )
        record.set_data(_describe(training_phases))
        summary = {"total_training_steps": FLAGS.num_train_steps}
        if FLAGS.do_train:
            summary.update(trainer.train(training_phases, record, **on_the_way))
        results = run_record.read_results(FLAGS.output_dir)
        step = checkpoints.latest(FLAGS.output_dir)[1]
        if FLAGS.do_eval and FLAGS.do_train and "train_loss" not in summary and results.get("global_step") == step:
            logging.info("already evaluated at step %d: masked_lm_loss %.3f", step, results["masked_lm_loss"])
        elif FLAGS.do_eval:
            summary["eval_metrics"] = _evaluate(trainer, *evaluation, training_phases, on_the_way.get("course"))
        run_record.update_summary(FLAGS.output_dir, summary)


def tpu_plan(device):
    """What the flags train on a TPU, for `bert.preflight_tpu`: a `Pretrainer`, and `Stretch`es without data."""
    recipe_phases, config_changes = _apply_recipe()
    if not FLAGS.bert_config_file:
        raise InputError("--bert_config_file is needed, or a --recipe that sets it.")
    config, vocab_file = _load_config(config_changes), _vocab_file()
    _fit_vocabulary(config, vocab_file)
    if vocab_file is None and FLAGS.vocab_size and configs.find(FLAGS.bert_config_file):
        config.vocab_size = FLAGS.vocab_size
    phases = recipes.split_steps(recipe_phases, FLAGS.num_train_steps, _schedule())
    for phase in phases:
        preflight.check_config(config, phase.max_seq_length)
    if FLAGS.pack_sequences:
        phases = [dataclasses.replace(phase, max_pairs=packing.max_pairs(phase.max_seq_length)) for phase in phases]
    return _trainer(config, device), [
        Stretch(phase.first_step, phase.last_step, phase.schedule, phase.feature_spec, None) for phase in phases
    ]


def _schedule():
    return Schedule(
        FLAGS.train_batch_size,
        FLAGS.learning_rate,
        FLAGS.num_train_steps,
        FLAGS.num_warmup_steps,
        **training_flags.schedule_options(FLAGS),
    )


def _trainer(config, device, init_checkpoint=None, check=None):
    return pretraining.Pretrainer(
        config,
        device,
        init_checkpoint=init_checkpoint,
        eval_batch_size=FLAGS.eval_batch_size,
        next_sentence=not FLAGS.no_nsp,
        check=check,
        **training_flags.trainer_options(FLAGS),
    )


def _apply_recipe():
    """Sets the flags that a recipe knows and the command line does not.

    Returns:
      The phases, and a dict of entries of the model's config that the recipe changes.
    """
    _apply_garden_flags()
    given = {name for name in ("num_warmup_steps", "save_checkpoints_steps") if FLAGS[name].present}
    phases, config_changes = (), {}
    if FLAGS.recipe:
        recipe = recipes.load(FLAGS.recipe)
        for name, value in recipe.flags.items():
            if name not in FLAGS:
                raise InputError(f"--recipe={FLAGS.recipe} sets an unknown flag: {name}.")
            if not FLAGS[name].present:
                FLAGS.set_default(name, value)
        # A phase has nothing of its own that the command line gives for all.
        given_options = {name for name in recipes.PHASE_OPTIONS if name in FLAGS and FLAGS[name].present}
        if "learning_rate" in given_options:
            given_options.add("warmup_proportion")
        phases = tuple(
            {name: value for name, value in phase.items() if name not in given_options} for phase in recipe.phases
        )
        if not FLAGS["bert_config_file"].present:
            config_changes = recipe.config
        published = recipe.flags.get("num_train_steps")
        if published and published != FLAGS.num_train_steps:
            # A shorter or longer training keeps its proportions.
            for name in {"num_warmup_steps", "save_checkpoints_steps"} & set(recipe.flags) - given:
                scaled = max(1, round(recipe.flags[name] * FLAGS.num_train_steps / published))
                logging.info("--%s=%d, in proportion to --num_train_steps=%d", name, scaled, FLAGS.num_train_steps)
                FLAGS.set_default(name, scaled)
    if phases and not FLAGS["max_seq_length"].present:
        return phases, config_changes
    if phases and not FLAGS["max_predictions_per_seq"].present:
        predictions = math.ceil(FLAGS.max_seq_length * FLAGS.masked_lm_prob)
        logging.info("--max_predictions_per_seq=%d, in proportion to --max_seq_length", predictions)
        FLAGS.set_default("max_predictions_per_seq", predictions)
    lengths = {name: FLAGS[name].value for name in ("max_seq_length", "max_predictions_per_seq")}
    return ({"share": 1.0, **lengths},), config_changes


def _apply_garden_flags():
    """Gives the flags that the model garden's stand for."""
    if FLAGS["num_train_epochs"].present or FLAGS["num_steps_per_epoch"].present:
        epochs, steps = FLAGS.num_train_epochs, FLAGS.num_steps_per_epoch
        origin = f"--num_train_epochs={epochs} of --num_steps_per_epoch={steps}"
        _give("num_train_steps", epochs * steps, origin)
    if FLAGS.warmup_steps is not None:
        _give("num_warmup_steps", round(FLAGS.warmup_steps), f"--warmup_steps={FLAGS.warmup_steps:g}")


def _give(name, value, origin):
    """Sets a flag as if it were on the command line, on which it must not have another value."""
    if not FLAGS[name].present:
        FLAGS[name].parse(value)
    elif FLAGS[name].value != value:
        raise InputError(f"--{name}={FLAGS[name].value} and {origin} contradict each other: give one of them.")


def _check_flags():
    for name in ("bert_config_file", "input_file", "output_dir"):
        if not FLAGS[name].value and not (name == "bert_config_file" and FLAGS.init_checkpoint):
            raise InputError(f"--{name} is needed, or a --recipe that sets it.")
    if not (FLAGS.do_train or FLAGS.do_eval):
        raise InputError("Nothing to do: give --do_train, --do_eval, or both.")
    training_flags.check_evaluation(FLAGS)
    metrics = [name for name in pretraining.METRICS if not (FLAGS.no_nsp and name.startswith("next_sentence"))]
    training_flags.check_best_metric(FLAGS, metrics)


def _vocab_file():
    """The vocabulary that is named, or lies beside the model's config."""
    if FLAGS.vocab_file:
        return FLAGS.vocab_file
    beside = os.path.join(os.path.dirname(FLAGS.bert_config_file), preflight.VOCAB_FILE)
    return beside if not configs.find(FLAGS.bert_config_file) and files.exists(beside) else None


def _load_config(changes):
    config = configs.load_model_config(FLAGS.bert_config_file)
    return modeling.BertConfig.from_dict({**config.to_dict(), **changes})


def _fit_vocabulary(config, vocab_file):
    """Checks a config against the vocabulary, whose size a shape that is only named takes on."""
    if vocab_file is not None:
        size = len(tokenization.load_vocab(vocab_file))
        if configs.find(FLAGS.bert_config_file):
            config.vocab_size = size
        preflight.check_vocabulary(config, size, vocab_file, FLAGS.bert_config_file)


def _find_initial():
    """Finds the initial checkpoint, if one is named, whose config and vocabulary are the defaults then.

    Returns:
      Its prefix, or None if the output folder has one of its own to go on from; and whether the config is its own.
    """
    if not FLAGS.init_checkpoint:
        return None, False
    if checkpoints.latest(FLAGS.output_dir)[0]:
        beside = [os.path.join(FLAGS.output_dir, name) for name in (preflight.CONFIG_FILE, preflight.VOCAB_FILE)]
        prefix, config_file, vocab_file = None, *(path if files.exists(path) else None for path in beside)
    else:
        prefix, config_file, vocab_file = checkpoint_formats.find_initial(FLAGS.init_checkpoint, FLAGS.output_dir)
    config_is_its = bool(config_file) and not FLAGS["bert_config_file"].present
    if config_is_its:
        FLAGS.bert_config_file = config_file
        FLAGS.vocab_file = FLAGS.vocab_file or vocab_file
    elif not FLAGS.bert_config_file:
        raise InputError(
            f"--bert_config_file is needed: there is none beside --init_checkpoint={FLAGS.init_checkpoint}."
        )
    return prefix, config_is_its


def _init_checkpoint(init, config):
    """Checks the initial checkpoint against the model; returns its prefix, or None."""
    if not init:
        return None
    initialisation = checkpoints.plan_initialisation(init, pretraining.variable_shapes(config))
    checkpoints.log_initialisation(initialisation)
    return initialisation.checkpoint


def _with_files(phase, find, flag, config, masking=None, is_packed=None):
    """Gives a phase its record files, after checking them against it."""
    lengths = phase.max_seq_length, phase.max_predictions_per_seq
    paths = find(*lengths)
    shape = preflight.check_records(paths, flag, *lengths, config, masking is None, is_packed)
    counts = tuple(pretraining_data.counts(paths))
    manifest = pretraining_data.read_manifest(paths[0]) if masking else None
    if masking and is_packed:
        _check_packed_for(masking, manifest, paths[0])
    if manifest and manifest["vocab_size"] != (size := max(masking.vocab.values()) + 1):
        raise InputError(
            f"--{flag}: the records in {paths[0]} were made with a vocabulary of {manifest['vocab_size']} entries, but "
            f"--dynamic_masking would mask them with one of {size}. Give theirs with --vocab_file."
        )
    return dataclasses.replace(
        phase,
        files=tuple(paths),
        counts=counts,
        max_pairs=shape.max_pairs,
        feature_names=shape.feature_names,
        layout=shape.layout,
        masking=masking,
    )


def _check_packed_for(masking, manifest, path):
    """Checks that the pairs of a row have no more predictions together than a row has room for."""
    names = ("masked_lm_prob", "max_predictions_per_seq")
    here = {name: getattr(masking, name) for name in names}
    there = {name: manifest["settings"][name] for name in names} if manifest else None
    if there != here:
        raise InputError(
            f"--input_file: the rows of {path} were packed for {there or 'what no manifest beside it tells'}, but this "
            f"training draws masks with {here}. Give the same, or make the records anew."
        )


def _masking(phase, source):
    """How a phase masks its examples as they are read; None if the records have masks."""
    if not FLAGS.dynamic_masking:
        return None
    if source.vocab_file is None:
        raise InputError("--dynamic_masking needs --vocab_file, or a vocab.txt beside bert_config.json.")
    kind = packed_masking.PackedMasking if FLAGS.pack_sequences else dynamic_masking.DynamicMasking
    return kind(
        tokenization.load_vocab(source.vocab_file, required=pretraining_data.SPECIAL_TOKENS),
        phase.max_predictions_per_seq,
        FLAGS.masked_lm_prob,
        FLAGS.do_whole_word_mask,
        FLAGS.seed,
    )


def _evaluation_phase(phases, source, config):
    """The phase at whose end the evaluation is, with the files to evaluate on, and its number of batches."""
    step = FLAGS.num_train_steps if FLAGS.do_train else checkpoints.latest(FLAGS.output_dir)[1]
    phase = next(phase for phase in phases if step <= phase.last_step or phase is phases[-1])
    if not source.has_held_out_documents:
        logging.warning("evaluating on the training records; name others with --eval_file")
    return _with_evaluation_files(phase, source, config), _max_eval_steps(source)


def _with_evaluation_files(phase, source, config):
    return _with_files(phase, source.evaluation_files, "eval_file" if FLAGS.eval_file else "input_file", config)


def _max_eval_steps(source):
    whole = source.has_held_out_documents and not FLAGS["max_eval_steps"].present
    return None if whole else FLAGS.max_eval_steps


def _evaluations_on_the_way(phases, source, config):
    """The arguments of `Pretrainer.train` for evaluations during training, each on records as long as its phase's."""
    return {
        "course": evaluations.Evaluations(FLAGS.output_dir, FLAGS.best_metric, FLAGS.early_stopping_patience),
        "evaluation_phases": [_with_evaluation_files(phase, source, config) for phase in phases],
        "eval_every": FLAGS.eval_every,
        "max_eval_steps": _max_eval_steps(source),
    }


def _describe(phases):
    """Logs how much there is to read, and returns it for the run record."""
    description = []
    for phase in phases:
        steps = phase.last_step - phase.first_step
        examples, available = steps * phase.schedule.train_batch_size, sum(phase.counts)
        logging.info(
            "steps %d to %d: %d examples of length %d = %.2f epochs of %d records = %.4g tokens",
            phase.first_step,
            phase.last_step,
            examples,
            phase.max_seq_length,
            examples / available,
            available,
            examples * phase.max_seq_length,
        )
        pairs = _count_pairs(phase) if phase.max_pairs else available
        if phase.max_pairs and pairs:
            each = pairs / available
            batch = phase.schedule.train_batch_size
            logging.info("packed: %.2f pairs in a row, so about %d in a step of %d rows", each, each * batch, batch)
        description.append(
            {
                "files": len(phase.files),
                "records": available,
                "pairs": pairs,
                "fingerprint": _fingerprint(phase),
                "max_seq_length": phase.max_seq_length,
                "epochs": examples / available,
                "tokens": examples * phase.max_seq_length,
            }
        )
    return description


def _count_pairs(phase):
    """Number of pairs in packed records; None if there is no JSON beside one that tells it."""
    manifests = [pretraining_data.read_manifest(path) for path in phase.files]
    return sum(map(pretraining_data.pairs, manifests)) if all(manifests) else None


def _fingerprint(phase):
    """What tells the records of a phase from others: that of the text they are made from, or names, sizes, counts."""
    manifest = pretraining_data.read_manifest(phase.files[0])
    if manifest:
        return manifest["fingerprint"]
    content = [(os.path.basename(path), files.size(path), count) for path, count in zip(phase.files, phase.counts)]
    return hashlib.sha256(repr(content).encode()).hexdigest()[:32]


def _evaluate(trainer, phase, max_steps, training_phases, course):
    """Evaluates, and writes and prints the results beside those of guessing."""
    done = course.get(checkpoints.latest(FLAGS.output_dir)[1]) if course else None
    if done and done["max_seq_length"] == phase.max_seq_length:
        results = {name: value for name, value in done.items() if name != "max_seq_length"}
    else:
        results = trainer.evaluate(phase, max_steps)
    run_record.write_results(FLAGS.output_dir, results)
    vocab_size = trainer.config.vocab_size
    guesses = baselines.masked_lm_losses(
        baselines.label_counts(training_phases[-1], vocab_size, baselines.MAX_RECORDS),
        baselines.label_counts(phase, vocab_size),
    )
    logging.info(
        "masked_lm_loss %.3f: a uniform guess has %.3f, guessing by token frequency has %.3f",
        results["masked_lm_loss"],
        guesses["uniform_loss"],
        guesses["token_frequency_loss"],
    )
    return {**results, **guesses}


if __name__ == "__main__":
    program.run(main)
