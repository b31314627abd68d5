"""Training on masks drawn while reading, from text to results."""

import json

import pytest
from arrays import assert_same, read_variables
from programs import Program

from bert.data import pretraining_data, records
from bert.data.pretraining_data import Settings
from bert.errors import InputError


@pytest.fixture
def run(tiny_text, tiny_model):
    """Runs the program in this process for 8 steps, with flags added."""
    program = Program("bert.run_pretraining")

    def run(**given):
        values = {
            "input_file": tiny_text,
            "bert_config_file": tiny_model / "bert_config.json",
            "do_train": True,
            "max_seq_length": 32,
            "max_predictions_per_seq": 5,
            "train_batch_size": 8,
            "num_train_steps": 8,
            "num_warmup_steps": 3,
            "save_checkpoints_steps": 4,
            "held_out_fraction": 0.2,
            "num_workers": 1,
            "dynamic_masking": True,
            **given,
        }
        program(**values)

    return run


def test_from_text_to_results_with_masks_drawn_while_reading_packed_rows(run, tmp_path):
    packed = {"pack_sequences": True, "short_seq_prob": 1.0}
    run(output_dir=tmp_path / "whole", do_eval=True, **packed)
    made = sorted((tmp_path / "whole" / "records").glob("*/*.tfrecord"))
    shapes = {path.parent.name.split("-")[0]: records.peek(str(path)) for path in made}
    assert {split: (of.max_predictions_per_seq, of.max_pairs) for split, of in shapes.items()} == {
        "train": (None, 4),
        "held_out": (5, None),
    }
    (manifest, *_) = (tmp_path / "whole" / "records").glob("train-*/*.json")
    assert json.loads(manifest.read_text())["settings"]["dupe_factor"] == 1
    summary = json.loads((tmp_path / "whole" / "training_summary.json").read_text())
    assert summary["eval_metrics"]["token_frequency_loss"] < summary["eval_metrics"]["uniform_loss"]

    train = str(tmp_path / "whole" / "records" / "train-*" / "*.tfrecord")
    for changes, message in (
        ({"pack_sequences": False}, "several pairs each, for --pack_sequences"),
        ({"pack_sequences": True, "masked_lm_prob": 0.3}, r"packed for .*0\.15.* draws masks with .*0\.3"),
    ):
        with pytest.raises(InputError, match=message):
            run(output_dir=tmp_path / "new", input_file=train, **changes)

    # Resumed at step 4, it sees the same masks.
    options = {"records_dir": tmp_path / "whole" / "records", "output_dir": tmp_path / "cut", **packed}
    run(**options)
    for path in (tmp_path / "cut").glob("model.ckpt-8.*"):
        path.unlink()
    (tmp_path / "cut" / "checkpoint").write_text('model_checkpoint_path: "model.ckpt-4"\n')
    run(**options)
    assert_same(read_variables(tmp_path / "whole", 8), read_variables(tmp_path / "cut", 8))


def test_records_of_the_other_kind_are_refused_in_words(run, tmp_path, tiny_model, tiny_text):
    unmasked, masked = str(tmp_path / "unmasked"), str(tmp_path / "masked")
    for path in (unmasked, masked):
        settings = Settings(
            max_seq_length=32,
            max_predictions_per_seq=5,
            dupe_factor=1,
            dynamic_masking=path == unmasked,
            pack_sequences=path == masked,  # records to evaluate may be
        )
        vocab_file = str(tiny_model / "vocab.txt")
        pretraining_data.create([str(tiny_text)], vocab_file, [path], settings, token_cache=str(tmp_path / "cache"))
    new = {"output_dir": tmp_path / "new"}
    with pytest.raises(InputError, match=r"have no masks.*--dynamic_masking"):
        run(input_file=unmasked, dynamic_masking=False, **new)
    with pytest.raises(InputError, match="have masks in them"):
        run(input_file=masked, **new)
    with pytest.raises(InputError, match=r"have no masks.*--eval_file"):
        run(input_file=unmasked, do_eval=True, **new)
    shorter = tmp_path / "vocab.txt"
    shorter.write_text("\n".join((tiny_model / "vocab.txt").read_text().split("\n")[:-2]))
    with pytest.raises(InputError, match=r"vocabulary of 32 entries.*one of 31"):
        run(input_file=unmasked, vocab_file=shorter, **new)
    run(input_file=unmasked, eval_file=masked, do_eval=True, num_accumulation_steps=2, **new)
    assert (tmp_path / "new" / "eval_results.txt").exists()
