"""Makes the pretraining records of `bert.create_pretraining_data` on many machines, by Apache Beam.

    python -m bert.create_pretraining_data_beam --input_file='gs://bucket/corpus/*.txt' \
        --output_file=gs://bucket/records/r@64 --vocab_file=gs://bucket/vocab.txt \
        -- --runner=DataflowRunner --project=... --region=... --temp_location=gs://bucket/temp

The flags are those of `bert.create_pretraining_data`, and so are the records, byte by byte. What follows ``--`` are
options of Beam and its runner; without any, the pipeline runs on this machine.
"""

import pathlib
import sys

if not __package__:  # run as a file
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

from absl import flags

from bert import create_pretraining_data, files, program
from bert.data import pretraining_data, records
from bert.errors import InputError

FLAGS = flags.FLAGS

_RUNNER_HERE = "apache_beam.runners.portability.fn_api_runner.FnApiRunner"

flags.DEFINE_string(
    "work_folder", None, "Folder for temporary files, reached by all workers. Default: work beside the first output."
)


def main(options):
    """Runs the pipeline and prints how many records each file has.

    Args:
      options: list of strings, the options of Beam and its runner.
    """
    try:
        import apache_beam as beam
        from apache_beam.options.pipeline_options import PipelineOptions

        from bert.data import beam_pipeline
    except ImportError as e:
        raise InputError(f"Apache Beam is missing ({e}): pip install -r requirements-beam.txt.") from e
    if FLAGS["num_workers"].present:
        raise InputError("--num_workers is an option of the runner here: give it after --.")
    settings = create_pretraining_data.settings_of_flags()
    outputs = records.expand_shards(FLAGS.output_file)
    pretraining_data.check(FLAGS.vocab_file, outputs, settings)
    work_folder = FLAGS.work_folder or f"{outputs[0].rpartition('/')[0] or '.'}/work"
    job = beam_pipeline.Job(
        input_files=tuple(files.expand_globs(FLAGS.input_file, "input_file")),
        vocab_file=FLAGS.vocab_file,
        output_files=tuple(outputs),
        settings=settings,
        token_folder=FLAGS.token_cache or f"{work_folder}/tokens",
        work_folder=work_folder,
    )
    if not any(option.startswith("--runner") for option in options):
        # What Beam calls DirectRunner, its default, begins with a download of another runner in late versions.
        options = [*options, f"--runner={_RUNNER_HERE}"]
    try:
        with beam.Pipeline(options=PipelineOptions(options)) as pipeline:
            beam_pipeline.build(pipeline, job)
    except Exception as e:
        # Runners wrap what a worker raises in errors of their own, or in text.
        cause = e
        while cause is not None and not isinstance(cause, InputError):
            cause = cause.__cause__ or cause.__context__
        if cause is None:
            raise
        raise InputError(str(cause)) from e
    manifests = [pretraining_data.read_manifest(path) for path in outputs]
    files.remove_folder(f"{work_folder}/{manifests[0]['fingerprint']}")
    counts = [manifest["records"] for manifest in manifests]
    print(f"{sum(counts):,} records of {settings.max_seq_length} tokens")
    for count, path in zip(counts, outputs):
        print(f"{count:>12,} records in {path}")


if __name__ == "__main__":
    own, beam_options = sys.argv, []
    if "--" in sys.argv:
        own, beam_options = sys.argv[: sys.argv.index("--")], sys.argv[sys.argv.index("--") + 1 :]
    sys.argv = own
    program.run(lambda: main(beam_options), required=["input_file", "output_file", "vocab_file"])
