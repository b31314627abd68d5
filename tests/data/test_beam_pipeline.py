"""The Beam pipeline makes the records of the local program, byte by byte."""

import os
import pathlib
import subprocess
import sys
import tempfile

import pytest

from bert.data import pretraining_data
from bert.data.pretraining_data import Settings

pytest.importorskip("apache_beam", reason="requirements-beam.txt is not installed")
ROOT = pathlib.Path(__file__).resolve().parents[2]
SETTINGS = {"max_seq_length": 32, "max_predictions_per_seq": 5, "dupe_factor": 3}


@pytest.fixture
def texts(tiny_text, tmp_path):
    """Two files of text."""
    lines = tiny_text.read_text().split("\n\n")
    paths = [tmp_path / "a.txt", tmp_path / "b.txt"]
    paths[0].write_text("\n\n".join(lines[:20]))
    paths[1].write_text("\n\n".join(lines[20:]))
    return [str(path) for path in paths]


def beam(texts, vocab_file, output, *options, flags=()):
    """Runs the program; returns the finished process."""
    arguments = [f"--{name}={value}" for name, value in SETTINGS.items()]
    arguments += [f"--input_file={','.join(texts)}", f"--vocab_file={vocab_file}", f"--output_file={output}@2", *flags]
    command = [sys.executable, "-m", "bert.create_pretraining_data_beam", *arguments, "--", *options]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


def test_the_records_are_those_of_the_local_program(texts, tiny_model, tmp_path):
    vocab_file = str(tiny_model / "vocab.txt")
    outputs = [tmp_path / "here" / f"r-0000{i}-of-00002" for i in range(2)]
    cache = str(tmp_path / "cache")
    runs = [([], False), (["--direct_num_workers=2", "--direct_running_mode=multi_processing"], True)]
    for number, (options, packed) in enumerate(runs):
        settings = Settings(**SETTINGS, pack_sequences=packed)
        made = pretraining_data.create(texts, vocab_file, list(map(str, outputs)), settings, token_cache=cache)
        flags = [f"--pack_sequences={packed}"]
        done = beam(texts, vocab_file, tmp_path / f"beam{number}" / "r", *options, flags=flags)
        assert done.returncode == 0, done.stderr
        assert f"{made.records:,} records of 32 tokens" in done.stdout
        for path in outputs:
            assert (tmp_path / f"beam{number}" / path.name).read_bytes() == path.read_bytes()
        assert pretraining_data.finished(
            made.fingerprint, [str(tmp_path / f"beam{number}" / path.name) for path in outputs]
        )
        assert os.listdir(tmp_path / f"beam{number}" / "work") == ["tokens"]


def test_a_shared_folder_may_be_remote(texts, tiny_model, tmp_path, monkeypatch):
    import apache_beam
    import tensorflow as tf

    from bert.data import beam_pipeline

    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    remote = [f"ram://beam/{os.path.basename(path)}" for path in texts]
    for path, far in zip(texts, remote):
        tf.io.gfile.copy(path, far, overwrite=True)
    vocab_file = str(tiny_model / "vocab.txt")
    outputs = ["ram://beam/out/x", "ram://beam/out/y"]
    job = beam_pipeline.Job(
        tuple(remote), vocab_file, tuple(outputs), Settings(**SETTINGS), "ram://beam/tokens", "ram://beam/work"
    )
    here = [str(tmp_path / "x"), str(tmp_path / "y")]
    pretraining_data.create(texts, vocab_file, here, Settings(**SETTINGS), token_cache=str(tmp_path / "cache"))
    for path in here:
        assert not tf.io.gfile.exists(path.replace(str(tmp_path), "ram://beam/out"))
    for _ in range(2):  # the second time from what is there
        with apache_beam.Pipeline("apache_beam.runners.portability.fn_api_runner.FnApiRunner") as pipeline:
            beam_pipeline.build(pipeline, job)
        for path, far in zip(here, outputs):
            with tf.io.gfile.GFile(far, "rb") as f:
                assert f.read() == pathlib.Path(path).read_bytes()
        tf.io.gfile.remove(outputs[0])


def test_mistakes_are_told_in_words(texts, tiny_model, tmp_path):
    vocab_file = tiny_model / "vocab.txt"
    pathlib.Path(texts[1]).write_bytes(b"a b\n\xff\n")
    done = beam(texts, vocab_file, tmp_path / "r")
    assert done.returncode == 2 and f"{texts[1]}, line 2: not utf-8" in done.stderr
    assert "Traceback" not in done.stderr
    done = beam(texts, vocab_file, tmp_path / "r", flags=["--num_workers=2"])
    assert done.returncode == 2 and "--num_workers is an option of the runner" in done.stderr
