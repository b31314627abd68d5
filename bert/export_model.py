"""Writes a trained model in the forms in which others take it.

    python -m bert.export_model --model_dir=out/mrpc --model_export_path=out/mrpc/export

makes out/mrpc/export/saved_model, for TensorFlow Serving and `tf.saved_model.load`, and out/mrpc/export/hugging_face,
for `from_pretrained` of Hugging Face transformers; with --formats=onnx out/mrpc/export/onnx. The model may be a
classifier, a regression, a tagger, one that answers questions, a pretrained one, or an encoder, and in any form that
docs/formats.md names.
"""

import dataclasses
import os

from absl import flags, logging

from bert import configs, program
from bert.errors import InputError
from bert.formats import export, trained
from bert.training import preflight

FLAGS = flags.FLAGS

flags.DEFINE_string("model_dir", None, "The model: the output folder of a training, a checkpoint, or another's model.")
flags.DEFINE_string("model_export_path", None, "Folder to write; each format gets a folder in it.")
flags.DEFINE_list(
    "formats", [export.SAVED_MODEL, export.HUGGING_FACE], f"What to write: {', '.join(export.FORMATS)}, one or several."
)
flags.DEFINE_string("bert_config_file", None, "Model shape. Default: the model's own.")
flags.DEFINE_string("vocab_file", None, "Vocabulary. Default: the model's own.")
flags.DEFINE_integer(
    "max_seq_length", None, "Tokens to which texts are cut. Default: as in the training, or 128.", lower_bound=3
)
flags.DEFINE_alias("output_dir", "model_dir")
flags.DEFINE_alias("init_checkpoint", "model_dir")
flags.DEFINE_alias("export_dir", "model_export_path")


def main():
    """Checks everything, reads the model once, and writes each format."""
    unknown = [form for form in FLAGS.formats if form not in export.FORMATS]
    if unknown or not FLAGS.formats:
        raise InputError(f"--formats={','.join(FLAGS.formats)}: there are {', '.join(export.FORMATS)}.")
    folders = {form: os.path.join(FLAGS.model_export_path, form) for form in FLAGS.formats}
    for form, folder in folders.items():
        export.check(folder, form)
    config = configs.load_model_config(FLAGS.bert_config_file) if FLAGS.bert_config_file else None
    model = trained.read(FLAGS.model_dir, config, FLAGS.vocab_file)
    if FLAGS.max_seq_length:
        model = dataclasses.replace(model, max_seq_length=FLAGS.max_seq_length)
    preflight.check_config(model.config, model.max_seq_length)
    logging.info("exporting %s, a model of the kind %s", model.path, model.kind)
    for form, folder in folders.items():
        export.write(folder, form, model)


if __name__ == "__main__":
    program.run(main, required=["model_dir", "model_export_path"])
