"""Prints the state of a run: step, loss, time left, last checkpoint, restarts.

python -m bert.status --output_dir=out/pretrain
"""

from absl import flags

from bert import program
from bert.errors import InputError
from bert.training import run_folder

FLAGS = flags.FLAGS

flags.DEFINE_string("output_dir", None, "Folder of the run.")


def main():
    """Reads the folder and prints."""
    lines = run_folder.describe(FLAGS.output_dir)
    if not lines:
        raise InputError(f"{FLAGS.output_dir}: there is no run ({run_folder.RECORD_FILE} is missing).")
    print("\n".join(lines))


if __name__ == "__main__":
    program.run(main, required=["output_dir"])
