"""Tests of `bert.training.seeds` and `bert.compare_seeds`."""

import json

import pytest
from programs import Program

from bert.errors import InputError
from bert.training import seeds

RESULTS = {1: (0.5, 0.9), 2: (0.75, 0.8), 10: (0.625, 0.7)}


@pytest.fixture
def folder(tmp_path):
    for seed, (accuracy, loss) in RESULTS.items():
        of = tmp_path / f"seed-{seed}"
        of.mkdir()
        (of / "eval_results.txt").write_text(f"eval_accuracy = {accuracy}\nglobal_step = 7\nloss = {loss}\n")
        (of / "task.json").write_text(json.dumps({"best_metric": "eval_accuracy"}))
        (of / "vocab.txt").write_text(f"of {seed}\n")
        (of / "events.out.tfevents.1").write_text("")
        (of / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-7"\n')
        for suffix in ("index", "data-00000-of-00001"):
            (of / f"model.ckpt-7.{suffix}").write_text(str(seed))
    (tmp_path / "seed-3").mkdir()  # has not been evaluated yet
    return tmp_path


def test_median_spread_and_the_best(folder):
    found = seeds.read(str(folder))
    assert list(found) == [1, 2, 10]
    best, table = seeds.compare(found, "eval_accuracy")
    assert best == 2 and set(table) == {"eval_accuracy", "loss"}
    assert table["eval_accuracy"] == pytest.approx(
        {"median": 0.625, "min": 0.5, "max": 0.75, "standard_deviation": 0.125}
    )
    assert seeds.compare(found, "loss")[0] == 10


def test_the_best_model_is_kept_where_it_is_looked_for(folder):
    compare_seeds = Program("bert.compare_seeds")
    for metric, best in ((None, "2"), ("loss", "10")):
        compare_seeds(output_dir=folder, metric=metric)
        assert json.loads((folder / "seeds.json").read_text())["best_seed"] == int(best)
        assert (folder / "model.ckpt-7.index").read_text() == best
        assert (folder / "vocab.txt").read_text() == f"of {best}\n"
    assert not (folder / "events.out.tfevents.1").exists()
    (folder / "seeds.json").unlink()
    with pytest.raises(InputError, match="has a checkpoint of a training of its own"):
        compare_seeds(output_dir=folder)
    with pytest.raises(InputError, match="no folder seed-N"):
        compare_seeds(output_dir=folder / "seed-3")
