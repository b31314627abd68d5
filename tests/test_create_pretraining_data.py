"""The program that makes pretraining records: flags, output, errors."""

import json
import pathlib
import subprocess
import sys

import pytest

from bert.data import records

ROOT = pathlib.Path(__file__).resolve().parents[1]
ORIGINAL_DEFAULTS = {
    "input_file": None,
    "output_file": None,
    "vocab_file": None,
    "do_lower_case": True,
    "do_whole_word_mask": False,
    "max_seq_length": 128,
    "max_predictions_per_seq": 20,
    "random_seed": 12345,
    "dupe_factor": 10,
    "masked_lm_prob": 0.15,
    "short_seq_prob": 0.1,
}


@pytest.fixture
def flags(tmp_path):
    """Flags of a small run, but for the output file."""
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefghij."]
    (tmp_path / "vocab.txt").write_text("\n".join(vocab))
    for name in ("one.txt", "two.txt"):
        (tmp_path / name).write_text("a b c.\nd e f.\ng h.\n\ni j a b.\nc.\n\n" * 5)
    return [
        f"--input_file={tmp_path}/one.txt,{tmp_path}/t*.txt",
        f"--vocab_file={tmp_path}/vocab.txt",
        f"--token_cache={tmp_path}/cache",
        "--max_seq_length=16",
        "--max_predictions_per_seq=3",
        "--num_workers=2",
    ]


def run(arguments, program=("-m", "bert.create_pretraining_data"), cwd=ROOT):
    return subprocess.run([sys.executable, *program, *arguments], cwd=cwd, capture_output=True, text=True, check=False)


def test_flags_and_defaults_are_the_originals():
    code = (
        "import json, sys\n"
        "import bert.create_pretraining_data as program\n"
        "assert 'tensorflow' not in sys.modules\n"
        "print(json.dumps({name: program.FLAGS[name].default for name in json.loads(sys.argv[1])}))"
    )
    done = run([json.dumps(list(ORIGINAL_DEFAULTS))], program=("-c", code))
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout) == ORIGINAL_DEFAULTS


def test_report_and_records(tmp_path, flags):
    done = run([*flags, f"--output_file={tmp_path}/x,{tmp_path}/y@2"])
    assert done.returncode == 0, done.stderr
    paths = [tmp_path / name for name in ("x", "y-00000-of-00002", "y-00001-of-00002")]
    counts = [records.count(str(path)) for path in paths]
    assert max(counts) - min(counts) <= 1
    assert f"{sum(counts)} records of 16 tokens" in done.stdout
    assert "20 documents, 50 sentences, 180 tokens" in done.stdout
    for path, count in zip(paths, counts):
        assert f"{count} records in {path}" in done.stdout
    for name in ("one.txt", "two.txt"):
        assert f"10          25            90   0.00 %  {tmp_path}/{name}" in done.stdout

    paths[1].unlink()
    again = run([*flags, f"--output_file={tmp_path}/x,{tmp_path}/y@2"])
    assert "2 of 3 files were complete" in again.stdout and "(tokenized before)" in again.stdout
    assert records.count(str(paths[1])) == counts[1]


def test_runs_as_a_file_from_anywhere(tmp_path, flags):
    assert run([*flags, f"--output_file={tmp_path}/x"]).returncode == 0
    file = str(ROOT / "bert" / "create_pretraining_data.py")
    done = run([*flags, f"--output_file={tmp_path}/y"], program=(file,), cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    assert (tmp_path / "x").read_bytes() == (tmp_path / "y").read_bytes()


@pytest.mark.parametrize(
    ("change", "status", "message"),
    [
        (["--max_seq_len=128"], 2, "Did you mean"),
        (["--input_file=nothing*.txt"], 2, "no file matches 'nothing*.txt'"),
        (["--vocab_file=nothing.txt"], 2, "nothing.txt"),
        (["--max_predictions_per_seq=17"], 2, "--max_predictions_per_seq=17 must be from 1 to --max_seq_length=16"),
        (["--input_encoding=klingon"], 2, "klingon"),
        (["stray"], 2, "stray"),
        (["--output_file=/dev/null/x"], 2, "/dev/null"),
        (["--output_file=/dev/null"], 2, "/dev/null is there and is not a file"),
    ],
)
def test_mistakes_are_errors_in_words(tmp_path, flags, change, status, message):
    done = run([*flags, f"--output_file={tmp_path}/x", *change])
    assert done.returncode == status
    assert message in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "x").exists()


def test_missing_flags_are_named():
    done = run([])
    assert done.returncode != 0
    assert "input_file" in done.stderr and "Traceback" not in done.stderr.split("FATAL")[-1]
