"""Making pretraining data: peak memory of one worker by the size of the text.

    python benchmarks/pretraining_data_memory.py --corpus=text.txt --vocab_file=vocab.txt --megabytes=10,100,1000

Text of each size is the corpus over and over in one file. The table has the peak resident memory of the whole
process, CPU seconds, and the sizes of the text and of the records.
"""

import os
import pathlib
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parents[1]))

from absl import flags

from bert import program

FLAGS = flags.FLAGS
flags.DEFINE_string("corpus", None, "Text file, a sentence a line.")
flags.DEFINE_string("vocab_file", None, "Uncased vocabulary.")
flags.DEFINE_list("megabytes", ["10", "100", "1000"], "Sizes of text.")
flags.DEFINE_integer("dupe_factor", 1, "Passes over the text.", lower_bound=1)


def main():
    """Prints the table."""
    print("".join(f"{name:>16}" for name in ["text MB", "peak memory MB", "CPU seconds", "records MB"]))
    for megabytes in FLAGS.megabytes:
        with tempfile.TemporaryDirectory() as folder:
            text = os.path.join(folder, "text.txt")
            _repeat(FLAGS.corpus, text, int(megabytes) * 10**6)
            output = os.path.join(folder, "records")
            usage = _run(text, output, folder)
            row = [os.path.getsize(text) / 1e6, usage.ru_maxrss / 1024, usage.ru_utime + usage.ru_stime]
            row.append(sum(path.stat().st_size for path in pathlib.Path(folder).glob("records*")) / 1e6)
            print("".join(f"{value:>16.0f}" for value in row), flush=True)


def _repeat(corpus, path, size):
    """Writes whole documents of the corpus until the text has `size` bytes."""
    documents = pathlib.Path(corpus).read_bytes().split(b"\n\n")
    with open(path, "wb") as f:
        number = 0
        while f.tell() < size:
            f.write(documents[number % len(documents)] + b"\n\n")
            number += 1


def _run(text, output, folder):
    command = [
        sys.executable,
        "-m",
        "bert.create_pretraining_data",
        f"--input_file={text}",
        f"--output_file={output}@8",
    ]
    command += [f"--vocab_file={FLAGS.vocab_file}", f"--token_cache={folder}/cache", "--num_workers=1"]
    command.append(f"--dupe_factor={FLAGS.dupe_factor}")
    root = pathlib.Path(__file__).resolve().parents[1]
    process = subprocess.Popen(command, cwd=root, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise RuntimeError(f"{' '.join(command)} failed")
    return usage


if __name__ == "__main__":
    program.run(main, required=["corpus", "vocab_file"])
