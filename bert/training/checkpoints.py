"""Where a training starts from: its own newest checkpoint, another model's, or nothing."""

import contextlib
import dataclasses
import functools
import os
import re

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from bert import files, modeling
from bert.errors import InputError
from bert.training import guards

STATE_FILE = "checkpoint"
DAMAGED = "damaged-"
_HALF_WRITTEN = re.compile(r"model\.ckpt-\d+(_temp|\..*tempstate)|(checkpoint|graph\.pbtxt)\.tmp")
_CHECKPOINT_FILE = re.compile(r"(?P<name>model\.ckpt-(?P<step>\d+))\.")
# What the reader of checkpoints ends with, whatever the cause.
_READER_ERRORS = (tf.errors.OpError, ValueError, RuntimeError, IndexError)


@dataclasses.dataclass(frozen=True)
class Initialisation:
    """What of an initial checkpoint goes into the model.

    Attributes:
      checkpoint: path prefix of the checkpoint.
      matched: names of the variables that are in both.
      new: names of the model's variables that the checkpoint lacks.
      unused: names of the checkpoint's variables that the model lacks, without optimizer slots.
    """

    checkpoint: str
    matched: tuple
    new: tuple
    unused: tuple


def latest(output_dir):
    """Path prefix of the newest checkpoint in a folder and its global step; (None, 0) if there is none."""
    step, _ = _read_state(output_dir)
    if step is None:
        return None, 0
    return os.path.join(output_dir, f"model.ckpt-{step}"), step


def copy(source, target, beside=()):
    """Copies a checkpoint, to be the only one in its folder, which then stands alone.

    Args:
      source: path prefix of the checkpoint.
      target: folder; a checkpoint that was copied there before is removed.
      beside: names of files beside the checkpoint that are copied too, if they are there.
    """
    files.make_folder(target)
    folder, prefix = os.path.split(source)
    before = [name for name in files.list_folder(target) if name.startswith("model.ckpt-")]
    copied = [name for name in files.list_folder(folder) if name.startswith(f"{prefix}.")]
    for name in (*copied, *beside):
        if files.exists(os.path.join(folder, name)):
            files.copy(os.path.join(folder, name), os.path.join(target, name))
    with files.atomic_write(os.path.join(target, "checkpoint"), "w") as f:
        f.write(f'model_checkpoint_path: "{prefix}"\n')
    for name in before:
        if name not in copied:
            files.remove(os.path.join(target, name))


def recover(output_dir, variables):
    """Makes the newest undamaged checkpoint of a folder the one that a training goes on from.

    Every value of the checkpoint that the file "checkpoint" names is read, which checks it against its checksums. One
    that is damaged is set aside under the name damaged-model.ckpt-N, and the one before is looked at. What a process
    that was killed left half-written is removed. If the file "checkpoint" is lost or names nothing that is there, the
    newest checkpoint in the folder counts; so does one that is whole and newer than all that the file lists, since a
    process may be killed between writing the one and the other.

    Args:
      output_dir: folder of the run; it need not exist.
      variables: dict from the names of the model's trainable variables to their shapes (lists).

    Returns:
      As `latest`.

    Raises:
      InputError: a checkpoint that is whole is one of another model.
    """
    found = {}  # step to names of the checkpoint's files
    for name in files.list_folder(output_dir):
        match = _CHECKPOINT_FILE.match(name)
        if _HALF_WRITTEN.match(name):
            _remove_leftover(os.path.join(output_dir, name))
        elif match:
            found.setdefault(int(match["step"]), []).append(name)
    steps = sorted(found, reverse=True)
    named, listed = _read_state(output_dir)
    if named in found:
        # A file that lists newer ones, or none at all, was written by a person, who wants the one it names.
        unlisted = [step for step in steps if step > named] if listed and named == max(listed) else []
        steps = [step for step in steps if step <= named]
        for step in unlisted:
            if _is_whole(output_dir, step, found[step], variables):
                logging.warning("%s does not name model.ckpt-%d yet, which is whole and newer", STATE_FILE, step)
                steps = [step, *steps]
                break
    elif steps:
        logging.warning("%s: %s is lost or damaged: looking for checkpoints", output_dir, STATE_FILE)
    for i, step in enumerate(steps):
        checkpoint = os.path.join(output_dir, f"model.ckpt-{step}")
        patience = guards.Patience(f"reading {checkpoint}")
        damage = patience.call(functools.partial(_damage, checkpoint, found[step], variables))
        if damage is None:
            if step != named:
                write_state(output_dir, steps[i:])
            return checkpoint, step
        logging.warning("%s is damaged (%s): set aside as %smodel.ckpt-%d", checkpoint, damage, DAMAGED, step)
        for name in found[step]:
            files.rename(os.path.join(output_dir, name), os.path.join(output_dir, DAMAGED + name))
    if steps:
        logging.warning("%s: no checkpoint is left: training begins anew", output_dir)
        if files.exists(os.path.join(output_dir, STATE_FILE)):
            files.remove(os.path.join(output_dir, STATE_FILE))
    return None, 0


def _read_state(output_dir):
    """The step of the checkpoint that the file "checkpoint" names, or None; and the steps of all that it lists."""
    path = os.path.join(output_dir, STATE_FILE)
    if not files.exists(path):
        return None, []
    with files.open_file(path) as f:
        content = f.read()
    # Not parsed by TensorFlow, which raises or logs in many ways at a file that is cut short.
    match = re.match(rb'model_checkpoint_path: ".*model\.ckpt-(\d+)"\s', content)
    listed = re.findall(rb'^all_model_checkpoint_paths: ".*model\.ckpt-(\d+)"\s', content, re.MULTILINE)
    return int(match[1]) if match else None, [int(step) for step in listed]


def write_state(output_dir, steps):
    """Writes the file "checkpoint" for the checkpoints of some steps, newest first."""
    with files.atomic_write(os.path.join(output_dir, STATE_FILE), "w") as f:
        f.write(f'model_checkpoint_path: "model.ckpt-{steps[0]}"\n')
        f.writelines(f'all_model_checkpoint_paths: "model.ckpt-{step}"\n' for step in reversed(steps))


def _is_whole(output_dir, step, names, variables):
    """Whether a checkpoint that was perhaps still being written can be gone on from."""
    checkpoint = os.path.join(output_dir, f"model.ckpt-{step}")
    try:
        return guards.Patience(f"reading {checkpoint}").call(lambda: _damage(checkpoint, names, variables)) is None
    except InputError:  # it is of another model: nobody has asked for it
        return False


def _damage(checkpoint, names, variables):
    """Says what is wrong with a checkpoint of these files; None if nothing is."""
    try:
        shapes = _read_whole(checkpoint)
    except _READER_ERRORS:
        # The reader reports a storage that does not answer in the same way: reading the bytes raises then.
        for name in names:
            with files.open_file(os.path.join(os.path.dirname(checkpoint), name)) as f:
                while f.read(1 << 24):
                    pass
        try:
            shapes = _read_whole(checkpoint)
        except _READER_ERRORS as e:
            return str(getattr(e, "message", e)).strip().splitlines()[0]
    if shapes is None:
        return "it holds values that are not finite"
    wanted = {**variables, "global_step": []}
    for name, shape in variables.items():
        wanted.update({f"{name}/adam_m": shape, f"{name}/adam_v": shape})
    for name, shape in wanted.items():
        if shapes.get(name) != list(shape):
            there = f"has {name} with shape {shapes[name]}" if name in shapes else f"lacks {name}"
            raise InputError(
                f"{checkpoint} {there}, which in this training has shape {list(shape)}. It belongs to another model: "
                f"take another --output_dir, or name it as --init_checkpoint of a new one."
            )
    return None


def _read_whole(checkpoint):
    """Reads every value, which checks it against its checksum.

    Returns:
      Dict from names to shapes; None if a value is not finite.
    """
    reader = tf.train.load_checkpoint(checkpoint)
    shapes = reader.get_variable_to_shape_map()
    for name in shapes:
        value = reader.get_tensor(name)
        if value.dtype.kind == "f" and not np.isfinite(value).all():
            return None
    return shapes


def _remove_leftover(path):
    # Only tidying up: what cannot be removed now is in nobody's way.
    with contextlib.suppress(OSError, tf.errors.OpError):
        tf.io.gfile.rmtree(path) if tf.io.gfile.isdir(path) else files.remove(path)


def newest(folder, count):
    """Path prefixes of the last checkpoints in a folder, oldest first.

    Raises:
      InputError: there are fewer than `count`.
    """
    steps = [int(match["step"]) for match in map(_CHECKPOINT_FILE.match, files.list_folder(folder)) if match]
    steps = sorted(set(steps))[-count:]
    if len(steps) < count:
        raise InputError(
            f"{folder} has {len(steps)} checkpoints (model.ckpt-N), not {count}. A training keeps as many as "
            f"--keep_checkpoint_max says."
        )
    return [os.path.join(folder, f"model.ckpt-{step}") for step in steps]


def average(prefixes, names):
    """The mean of some variables over several checkpoints: a dict from name to float32 array."""
    readers = [tf.train.load_checkpoint(prefix) for prefix in prefixes]
    return {
        name: np.mean([reader.get_tensor(name) for reader in readers], axis=0, dtype=np.float64).astype(np.float32)
        for name in names
    }


def read_shapes(checkpoint, flag="init_checkpoint"):
    """Names and shapes of the variables in a checkpoint.

    Raises:
      InputError: there is no checkpoint at that path.
    """
    try:
        return dict(tf.train.list_variables(checkpoint))
    except (ValueError, tf.errors.OpError) as e:
        raise InputError(
            f"--{flag}={checkpoint}: no TensorFlow checkpoint can be read there ({e}). A checkpoint is named by "
            f"its prefix, as in bert_model.ckpt for bert_model.ckpt.index."
        ) from e


def plan_initialisation(checkpoint, variables):
    """Finds out which variables an initial checkpoint gives, and refuses one that does not fit.

    Args:
      checkpoint: path prefix.
      variables: dict from the model's variable names to their shapes (lists).

    Returns:
      An `Initialisation`.

    Raises:
      InputError: a variable has other shapes on the two sides, or none has the same name.
    """
    there = read_shapes(checkpoint)
    for name, shape in variables.items():
        if name in there and list(there[name]) != list(shape):
            raise InputError(
                f"--init_checkpoint={checkpoint}: {name} has shape {list(there[name])} there but {list(shape)} in this "
                f"model. Use the bert_config.json that belongs to the checkpoint."
            )
    matched = tuple(name for name in variables if name in there)
    if not matched:
        raise InputError(
            f"--init_checkpoint={checkpoint}: none of its {len(there)} variables is in this model "
            f"(it has {', '.join(sorted(there)[:3])}, ...; this model has {', '.join(sorted(variables)[:3])}, ...)."
        )
    return Initialisation(
        checkpoint,
        matched,
        tuple(name for name in variables if name not in there),
        tuple(
            name
            for name in there
            if name not in variables and not name.endswith(("/adam_m", "/adam_v")) and name != "global_step"
        ),
    )


def log_initialisation(initialisation):
    """Says in one line what comes from the initial checkpoint."""
    logging.info(
        "initialising from %s: %d of %d variables; new: %s; unused: %s",
        initialisation.checkpoint,
        len(initialisation.matched),
        len(initialisation.matched) + len(initialisation.new),
        _some(initialisation.new),
        _some(initialisation.unused),
    )


def scaffold_function(init_checkpoint, patience=None):
    """Returns the `scaffold_fn` of a TPUEstimatorSpec.

    Args:
      init_checkpoint: path prefix of a checkpoint that the graph's trainable variables start from, as far as it has
        them; or None.
      patience: the `guards.Patience` that bounds the attempts to make a session; None: one of its own.
    """
    variables = tf.trainable_variables() if init_checkpoint else []

    def scaffold_fn():
        if init_checkpoint:
            assignment_map, _ = modeling.get_assignment_map_from_checkpoint(variables, init_checkpoint)
            tf.train.init_from_checkpoint(init_checkpoint, assignment_map)
        return guards.Scaffold(patience)

    return scaffold_fn


def _some(names, limit=4):
    if not names:
        return "none"
    return ", ".join(names[:limit]) + (f", and {len(names) - limit} more" if len(names) > limit else "")
