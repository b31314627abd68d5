"""Published recipes as data: the flags of a training and its phases.

A recipe is a JSON file in `bert/configs/recipes`, or one of the user's own:

    {
      "source": "where each figure is from",
      "flags": {"bert_config_file": "bert-base", "train_batch_size": 256, ...},
      "config": {"initializer_range": 0.05},
      "phases": [
        {"share": 0.9, "max_seq_length": 128, "max_predictions_per_seq": 20},
        {"share": 0.1, "max_seq_length": 512, "max_predictions_per_seq": 77}
      ]
    }

Flags given on the command line win over the recipe's; "config" changes entries of the config that the recipe names,
not of one that the user does. A phase may have a "train_batch_size" of its own, and a "learning_rate" that rises and
falls within the phase, rising for the share "warmup_proportion" of its steps. The name of a model shape (see
`bert.configs`) is a recipe too: that shape with the schedule of `bert.json`, as published.
"""

import dataclasses
import os

from bert import configs, files
from bert.errors import InputError
from bert.training.pretraining import Phase

FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "configs", "recipes")
PUBLISHED = "bert"
_KEYS = {"source", "flags", "config", "phases"}
_PHASE_KEYS = {"share", "max_seq_length", "max_predictions_per_seq"}
# What a phase may have of its own: flags by their names, and a learning rate that rises and falls within the phase.
PHASE_OPTIONS = {"train_batch_size", "learning_rate", "warmup_proportion"}


@dataclasses.dataclass(frozen=True)
class Recipe:
    """A recipe: flags (name to value), entries of its model's config that differ, and its phases as dicts."""

    flags: dict
    config: dict
    phases: tuple


def names():
    """Names of the recipes that come with the project, model shapes aside."""
    return sorted(name[: -len(".json")] for name in os.listdir(FOLDER) if name.endswith(".json"))


def load(name_or_path):
    """Reads a recipe by its name, or from a file.

    Raises:
      InputError: there is no such recipe, or it is not well-formed.
    """
    if name_or_path in names():
        return _read(os.path.join(FOLDER, f"{name_or_path}.json"))
    shape = configs.find(name_or_path)
    if shape:
        recipe = _read(os.path.join(FOLDER, f"{PUBLISHED}.json"))
        own = {"bert_config_file": shape, "do_lower_case": not shape.endswith("-cased")}
        return Recipe({**recipe.flags, **own}, {}, recipe.phases)
    if files.exists(name_or_path):
        return _read(name_or_path)
    raise InputError(
        f"--recipe={name_or_path}: neither a recipe nor a file. Recipes: {', '.join(names())}, "
        f"and the model shapes: {', '.join(configs.names())}."
    )


def _read(path):
    content = files.read_json_object(path)
    _check_keys(path, content, _KEYS)
    phases = content.get("phases", [])
    for phase in phases:
        _check_keys(path, phase, _PHASE_KEYS | PHASE_OPTIONS, required=_PHASE_KEYS)
        if ("learning_rate" in phase) != ("warmup_proportion" in phase):
            raise InputError(f"--recipe: {path}: a phase has learning_rate and warmup_proportion both, or neither.")
    total = sum(phase["share"] for phase in phases)
    if phases and abs(total - 1) > 1e-9:
        raise InputError(f"--recipe: {path}: the phases' shares add up to {total}, not to 1.")
    return Recipe(content.get("flags", {}), content.get("config", {}), tuple(phases))


def split_steps(phases, num_train_steps, schedule):
    """Turns the phases' shares into `Phase`s with steps, without files yet.

    Args:
      phases: tuple of dicts, as of `Recipe`.
      num_train_steps: steps of all phases.
      schedule: the `Schedule` of phases without one of their own.
    """
    result = []
    share, first_step = 0.0, 0
    for phase in phases:
        share += phase["share"]
        last_step = round(share * num_train_steps)
        own = dataclasses.replace(schedule, train_batch_size=phase.get("train_batch_size", schedule.train_batch_size))
        if "learning_rate" in phase:
            steps = last_step - first_step
            own = dataclasses.replace(
                own,
                learning_rate=phase["learning_rate"],
                num_train_steps=steps,
                num_warmup_steps=round(phase["warmup_proportion"] * steps),
                first_step=first_step,
            )
        if last_step > first_step:
            lengths = phase["max_seq_length"], phase["max_predictions_per_seq"]
            result.append(Phase(first_step, last_step, *lengths, own))
        first_step = last_step
    return result


def _check_keys(path, content, allowed, required=()):
    if not isinstance(content, dict):
        raise InputError(f"--recipe: {path}: expected an object with {', '.join(sorted(allowed))}.")
    for key in content:
        if key not in allowed:
            raise InputError(f"--recipe: {path}: unknown entry {key!r}; known: {', '.join(sorted(allowed))}.")
    for key in required:
        if key not in content:
            raise InputError(f"--recipe: {path}: a phase lacks {key!r}.")
