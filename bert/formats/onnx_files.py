"""ONNX files, by tf2onnx, which is not among requirements.txt: see requirements-export.txt."""

import sys

from bert import files
from bert.errors import InputError
from bert.formats import serving

# The oldest that has all operations as they are needed, and so the one that most runtimes have.
_OPSET = 13


def check_installed():
    """Raises InputError if the converter is missing."""
    try:
        import tf2onnx  # noqa: F401
    except ImportError as e:
        raise InputError(
            f"--formats=onnx needs tf2onnx ({e}): {sys.executable} -m pip install -r requirements-export.txt"
        ) from e


def write(path, model):
    """Writes the inputs and outputs of the SavedModel's serving_default as an ONNX model.

    Args:
      path: file to write, local or gs://.
      model: a `bert.formats.trained.TrainedModel`.
    """
    import tf2onnx

    graph, inputs, outputs = serving.frozen_graph(model)
    converted, _ = tf2onnx.convert.from_graph_def(
        graph, input_names=list(inputs.values()), output_names=list(outputs.values()), opset=_OPSET
    )
    _rename(converted.graph, {there: name for name, there in {**inputs, **outputs}.items()})
    with files.atomic_write(path) as f:
        f.write(converted.SerializeToString())


def _rename(graph, names):
    """Gives values of an ONNX graph other names."""
    for value in (*graph.input, *graph.output):
        value.name = names.get(value.name, value.name)
    for node in graph.node:
        node.input[:] = [names.get(name, name) for name in node.input]
        node.output[:] = [names.get(name, name) for name in node.output]
