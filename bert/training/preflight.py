"""What can be checked before the first step: each check names both sides of what disagrees."""

import dataclasses
import os

from absl import logging

from bert import files
from bert.data import records
from bert.errors import InputError

CONFIG_FILE = "bert_config.json"
VOCAB_FILE = "vocab.txt"


def check_config(config, max_seq_length):
    """Checks a model's shape against the sequence length."""
    config.check()
    if max_seq_length > config.max_position_embeddings:
        raise InputError(
            f"--max_seq_length={max_seq_length} is more than max_position_embeddings="
            f"{config.max_position_embeddings} in the model's config."
        )


def check_vocabulary(config, vocab_size, vocab_file, config_file):
    """Checks that every id of the vocabulary has an embedding."""
    if vocab_size > config.vocab_size:
        raise InputError(
            f"{vocab_file} has {vocab_size} entries but {config_file} has vocab_size {config.vocab_size}: "
            f"ids from {config.vocab_size} on would have no embedding. Use a config and vocabulary of the same model."
        )
    if vocab_size < config.vocab_size:
        logging.warning(
            "%s has %d entries and the model %d: the last %d embeddings will not be used.",
            vocab_file,
            vocab_size,
            config.vocab_size,
            config.vocab_size - vocab_size,
        )


def check_records(paths, flag, max_seq_length, max_predictions_per_seq, config, has_masks=True, is_packed=None):
    """Checks that record files have the shapes asked for and no token without an embedding.

    Args:
      paths: the files.
      flag: the flag that names them.
      max_seq_length, max_predictions_per_seq, config: what the training has.
      has_masks: whether the records must have masks, or must have none.
      is_packed: whether they must be packed, or must not be; None: as they are, but all alike.

    Returns:
      A `records.RecordShape` that all files have; its layout is None if they have several.
    """
    layouts = []
    for path in paths:
        shape = records.peek(path)
        layouts.append(shape.layout)
        if has_masks and shape.max_predictions_per_seq is None:
            raise InputError(
                f"--{flag}: the records in {path} have no masks. They are for training with --dynamic_masking; "
                "evaluation needs records with masks, see --eval_file."
            )
        if not has_masks and shape.max_predictions_per_seq is not None:
            raise InputError(
                f"--{flag}: the records in {path} have masks in them, which --dynamic_masking would draw. Leave the "
                "flag out, or make the records anew with it."
            )
        if is_packed is None:
            is_packed = shape.max_pairs is not None
        if is_packed != (shape.max_pairs is not None):
            there = "several pairs each, for" if shape.max_pairs else "one pair each, for training without"
            raise InputError(f"--{flag}: the records in {path} hold {there} --pack_sequences.")
        for name, there, here in (
            ("max_seq_length", shape.max_seq_length, max_seq_length),
            ("max_predictions_per_seq", shape.max_predictions_per_seq, max_predictions_per_seq),
        ):
            if there not in (here, None):
                raise InputError(
                    f"--{flag}: the records in {path} were made with {name}={there}, but this training "
                    f"has {name}={here}. Set --{name}={there}, or make the records anew."
                )
        if shape.max_token_id >= config.vocab_size:
            raise InputError(
                f"--{flag}: {path} has token id {shape.max_token_id}, but the model's vocab_size is "
                f"{config.vocab_size}. The records were made with another vocabulary."
            )
    is_common = all(layout == layouts[0] for layout in layouts)
    return dataclasses.replace(shape, layout=layouts[0] if is_common else None)


def check_output_dir(output_dir, config, vocab_file):
    """Checks that an output folder, if it has been used, was used for this model.

    Raises:
      InputError: the folder was trained with another config or vocabulary.
    """
    path = os.path.join(output_dir, CONFIG_FILE)
    if files.exists(path):
        before, now = files.read_json_object(path), config.to_dict()
        for key in sorted({*before, *now}):
            if before.get(key) != now.get(key):
                raise InputError(
                    f"--output_dir={output_dir} was trained with {key}={before.get(key)} ({path}), but this "
                    f"model has {key}={now.get(key)}. Take another --output_dir, or the config it was trained with."
                )
    path = os.path.join(output_dir, VOCAB_FILE)
    if vocab_file is not None and files.exists(path) and files.read_text(path) != files.read_text(vocab_file):
        raise InputError(
            f"--output_dir={output_dir} was trained with another vocabulary ({path}) than {vocab_file}. "
            f"Take another --output_dir, or --vocab_file={path}."
        )


def claim_output_dir(output_dir, config, vocab_file):
    """Puts copies of the config and the vocabulary into the output folder, so that it stands alone."""
    files.make_folder(output_dir)
    with files.atomic_write(os.path.join(output_dir, CONFIG_FILE), "w") as f:
        f.write(config.to_json_string())
    path = os.path.join(output_dir, VOCAB_FILE)
    if vocab_file is not None and not files.exists(path):
        files.copy(vocab_file, path)
