"""Writes report.html and loss.png in the folder of a run, also while it is running.

python -m bert.report --output_dir=out/pretrain
"""

from absl import flags, logging

from bert import program
from bert.errors import InputError
from bert.training import report, run_folder

FLAGS = flags.FLAGS

flags.DEFINE_string("output_dir", None, "Folder of the run.")


def main():
    """Reads the folder and writes the report."""
    if run_folder.read_json(FLAGS.output_dir, run_folder.RECORD_FILE) is None:
        raise InputError(f"{FLAGS.output_dir}: there is no run ({run_folder.RECORD_FILE} is missing).")
    logging.info("written: %s", report.write(FLAGS.output_dir))


if __name__ == "__main__":
    program.run(main, required=["output_dir"])
