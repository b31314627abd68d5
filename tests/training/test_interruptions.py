"""Trainings that are killed, stopped, or run out of disk or input: what they leave, and that they can go on."""

import json
import pathlib
import signal
import subprocess
import sys
import time

import pytest

ROOT = pathlib.Path(__file__).resolve().parents[2]


def check_kills(program, data, model, output, kills):
    command = [sys.executable, ROOT / "tests" / "training" / "killed_training.py", program]
    flags = [f"--data={data}", f"--model={model}", f"--output={output}", f"--kills={kills}"]
    result = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert len(report["kills"]) == kills
    assert report["killed"] == report["whole"]
    assert report["evaluations_equal"]
    assert not report["leftovers"]


def test_a_killed_pretraining_ends_with_the_same_variables(tiny_text, tiny_model, tmp_path):
    check_kills("run_pretraining", tiny_text, tiny_model, tmp_path, kills=3)  # one of each kind


def test_a_killed_fine_tuning_ends_with_the_same_variables(tiny_text, tiny_model, tmp_path):
    lines = [line for line in pathlib.Path(tiny_text).read_text().splitlines() if line.strip()][:30]
    table = tmp_path / "sentences.tsv"
    table.write_text("text\tlabel\n" + "".join(f"{line}\t{len(line) % 3}\n" for line in lines))
    check_kills("run_classifier", table, tiny_model, tmp_path, kills=1)


@pytest.mark.parametrize("sent, before", [(signal.SIGTERM, "step 2 of"), (signal.SIGINT, "training text")])
def test_a_signal_ends_the_program_with_a_status_of_its_own(tiny_text, tiny_model, tmp_path, sent, before):
    values = {
        "input_file": tiny_text,
        "bert_config_file": tiny_model / "bert_config.json",
        "output_dir": tmp_path,
        "max_seq_length": 32,
        "max_predictions_per_seq": 5,
        "train_batch_size": 4,
        "num_train_steps": 100000,
        "log_steps": 1,
        "num_workers": 1,
    }
    flags = ["--do_train", *(f"--{name}={value}" for name, value in values.items())]
    command = [sys.executable, "-m", "bert.run_pretraining", *flags]
    process = subprocess.Popen(command, cwd=ROOT, stderr=subprocess.PIPE, text=True)
    lines = iter(process.stderr.readline, "")
    assert any(before in line for line in lines)
    process.send_signal(sent)
    begin = time.monotonic()
    log = process.communicate(timeout=60)[1]
    assert process.returncode == 75
    assert time.monotonic() - begin < 30
    assert log.endswith(f"run_pretraining.py: stopped by {sent.name}; run again to go on.\n")
    record = tmp_path / "run.json"
    if before == "step 2 of":
        # In the training: the steps made so far are in a checkpoint.
        record = json.loads(record.read_text())
        assert (record["status"], record["reason"]) == ("stopped", sent.name)
        assert record["last_checkpoint"]["step"] >= 2
        assert (tmp_path / f"model.ckpt-{record['last_checkpoint']['step']}.index").exists()
