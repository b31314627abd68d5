"""Runs every benchmark that needs nothing from elsewhere, and compares its ratios with those of the committed table.

    python benchmarks/all.py --output_dir=out/bench

Ratios to a peer that was measured in the same run depend little on the machine and its load, as seconds do. What the
programs print is in the output folder, and table.md there has all ratios, with those of benchmarks/table.json beside
them. --save makes the new ones the committed ones.
"""

import json
import os
import pathlib
import platform
import subprocess
import sys
import tempfile
import time

import results
from absl import app, flags

FLAGS = flags.FLAGS
flags.DEFINE_string("output_dir", "out/bench", "Where table.md goes, and what the programs print.")
flags.DEFINE_bool("save", False, "Whether to replace the committed table.")

_HERE = pathlib.Path(__file__).resolve().parent
_COMMITTED = _HERE / "table.json"
_TEXT = _HERE.parent / "data" / "kjv" / "train.txt"
# A ratio that has fallen by more than this is shown as slower: two runs on one machine differ by a few percent.
_TOLERANCE = 0.1


def main(argv):
    """Writes the table."""
    del argv
    output = pathlib.Path(FLAGS.output_dir).resolve()
    output.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as folder:
        file = os.path.join(folder, "results.jsonl")
        vocab = _make_data(folder)
        for name, arguments in _runs(folder, vocab).items():
            start = time.monotonic()
            text = _python(str(_HERE / f"{name}.py"), *arguments, **{results.FILE: file})
            (output / f"{name}.txt").write_text(text, encoding="utf-8")
            print(f"{text}({name}: {time.monotonic() - start:.0f} s)\n", flush=True)
        rows = [json.loads(line) for line in pathlib.Path(file).read_text(encoding="utf-8").splitlines()]
    committed = json.loads(_COMMITTED.read_text(encoding="utf-8")) if _COMMITTED.exists() else {}
    found = {"machine": _machine(), "rows": rows}
    table = _table(found, committed)
    (output / "table.md").write_text(table, encoding="utf-8")
    print(table, end="")
    if FLAGS.save:
        _COMMITTED.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


def _runs(folder, vocab):
    """Dict from the programs to their arguments."""
    return {
        "training_step": ["--shapes=bert-mini:32,bert-base:8", "--rounds=3", "--burst_seconds=1"],
        "pretraining_data": [
            f"--corpus={_TEXT}",
            f"--vocab_file={vocab}",
            "--cases=128:20:40",
            "--arms=ours,two",
        ],
        "input_pipeline": [
            f"--records={folder}/masked-*",
            f"--unmasked={folder}/unmasked-*",
            f"--vocab_file={vocab}",
            "--arms=parsed,ours,dynamic,dynamic:wwm",
            "--batch_sizes=32",
            "--examples=30000",
        ],
        "finetuning_lengths": ["--rounds=3"],
        "pretraining_packing": ["--quick"],
    }


def _make_data(folder):
    """Writes a vocabulary and records with and without masks; returns the path of the vocabulary."""
    vocab = os.path.join(folder, "vocab.txt")
    _python("-m", "bert.train_vocab", f"--input_file={_TEXT}", f"--output_file={vocab}", "--vocab_size=8000")
    for name, dynamic in (("masked", False), ("unmasked", True)):
        _python(
            "-m",
            "bert.create_pretraining_data",
            f"--input_file={_TEXT}",
            f"--vocab_file={vocab}",
            f"--output_file={folder}/{name}-@4",
            f"--dynamic_masking={dynamic}",
            f"--token_cache={folder}/cache",
            "--dupe_factor=2",
        )
    return vocab


def _python(*arguments, **environment):
    """Runs Python in the project's folder; returns what it printed."""
    command = [sys.executable, *arguments]
    process = subprocess.run(
        command, cwd=_HERE.parent, env={**os.environ, **environment}, capture_output=True, text=True, check=False
    )
    if process.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{process.stderr}")
    return process.stdout


def _table(found, committed):
    """The table as Markdown."""
    before = {(row["benchmark"], row["what"]): row["ratio"] for row in committed.get("rows", [])}
    lines = [
        f"Here: {found['machine']}.",
        f"Committed: {committed.get('machine', 'no table')}.",
        "",
        "| benchmark | what | ratio | beside | committed | |",
        "|---|---|---|---|---|---|",
    ]
    for row in found["rows"]:
        old = before.get((row["benchmark"], row["what"]))
        verdict = "slower" if old and row["ratio"] < old * (1 - _TOLERANCE) else ""
        lines.append(
            f"| {row['benchmark']} | {row['what']} | {row['ratio']:.2f} | {row['beside']} | "
            f"{'' if old is None else f'{old:.2f}'} | {verdict} |"
        )
    return "\n".join(lines) + "\n"


def _machine():
    """The processor, its cores, and what it can multiply."""
    try:
        text = pathlib.Path("/proc/cpuinfo").read_text(encoding="utf-8")
    except OSError:
        return f"{platform.machine()}, {os.cpu_count()} cores"
    fields = dict(line.replace("\t", "").split(":", 1) for line in text.splitlines() if ":" in line)
    known = ("avx2", "avx512f", "avx512_vnni", "avx512_bf16", "amx_bf16")
    has = [name for name in known if name in fields.get("flags", "").split()]
    return f"{fields.get('model name', platform.machine()).strip()}, {os.cpu_count()} cores, {' '.join(has)}"


if __name__ == "__main__":
    app.run(main)
