"""Trainings that are killed, stopped, or run out of disk or input: what they leave, and that they can go on."""

import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
KILLS = 4


def test_a_killed_training_ends_with_the_same_variables(tiny_text, tiny_model, tmp_path):
    command = [sys.executable, ROOT / "tests" / "training" / "killed_training.py"]
    flags = [f"--text={tiny_text}", f"--model={tiny_model}", f"--output={tmp_path}", f"--kills={KILLS}"]
    result = subprocess.run([*command, *flags], capture_output=True, text=True, timeout=280)
    assert result.returncode == 0, result.stderr
    report = json.loads(result.stdout)
    assert len(report["kills"]) == KILLS
    assert report["killed"] == report["whole"]
    assert report["evaluations_equal"]
    assert not report["leftovers"]
