"""Recipes are well-formed data, and their phases cover the steps."""

import json

import pytest
from programs import Program

from bert import configs
from bert.errors import InputError
from bert.training import recipes
from bert.training.trainer import Schedule

SCHEDULE = Schedule(256, 1e-4, 1_000_000, 10_000)


@pytest.mark.parametrize("name", [*recipes.names(), *configs.names()])
def test_every_recipe_names_known_flags_and_covers_the_steps(name):
    recipe = recipes.load(name)
    assert set(recipe.flags) <= set(Program("bert.run_pretraining").defaults)
    configs.load_model_config(recipe.flags["bert_config_file"])
    phases = recipes.split_steps(recipe.phases, recipe.flags["num_train_steps"], SCHEDULE)
    assert phases[0].first_step == 0
    assert phases[-1].last_step == recipe.flags["num_train_steps"]
    for one, next_one in zip(phases, phases[1:]):
        assert one.last_step == next_one.first_step


def test_the_published_schedule():
    recipe = recipes.load("bert-large")
    assert recipe.flags["bert_config_file"] == "bert-large-uncased"
    phases = recipes.split_steps(recipe.phases, 1_000_000, SCHEDULE)
    assert [(phase.last_step, phase.max_seq_length) for phase in phases] == [(900_000, 128), (1_000_000, 512)]
    assert all(phase.schedule == SCHEDULE for phase in phases)
    assert recipes.load("bert-base-multilingual-cased").flags["do_lower_case"] is False


def test_phases_with_rates_and_batches_of_their_own():
    first, second = recipes.split_steps(recipes.load("nvidia-lamb").phases, 8602, SCHEDULE)
    assert (first.last_step, second.last_step) == (7038, 8602)
    assert (first.schedule.train_batch_size, second.schedule.train_batch_size) == (65536, 32768)
    assert (first.schedule.num_warmup_steps, second.schedule.num_warmup_steps) == (2000, 200)
    rates = [phase.schedule.learning_rate_at(step) for phase, step in ((first, 1000), (second, 7038), (second, 7138))]
    assert rates == pytest.approx([3e-3, 0, 2e-3])


def test_short_trainings_leave_out_phases_without_steps():
    assert [phase.last_step for phase in recipes.split_steps(recipes.load("bert").phases, 3, SCHEDULE)] == [3]


@pytest.mark.parametrize(
    "content, message",
    [
        ("{", "recipe.json, line 1"),
        (json.dumps({"flag": {}}), "unknown entry 'flag'; known: config, flags, phases, source"),
        (json.dumps({"phases": [{"share": 1}]}), "a phase lacks 'max_"),
        (
            json.dumps(
                {"phases": [{"share": 1, "max_seq_length": 8, "max_predictions_per_seq": 1, "learning_rate": 1}]}
            ),
            "learning_rate and warmup_proportion both",
        ),
        (
            json.dumps({"phases": [{"share": 0.7, "max_seq_length": 8, "max_predictions_per_seq": 1}]}),
            "shares add up to 0.7",
        ),
    ],
)
def test_malformed_recipes(tmp_path, content, message):
    path = tmp_path / "recipe.json"
    path.write_text(content)
    with pytest.raises(InputError, match=message):
        recipes.load(str(path))
