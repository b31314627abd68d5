"""From a model function to the HLO of one step of one replica, on a machine without a TPU.

The graph is the one that each core of a TPU runs, sums over the replicas included. Only the infeed is left out: the
features are arguments.
"""

import dataclasses
import glob
import os
import re

import tensorflow as tf2
import tensorflow.compat.v1 as tf
from tensorflow.python.eager import context
from tensorflow.python.eager.polymorphic_function import compiler_ir
from tensorflow.python.framework import function_def_to_graph, kernels
from tensorflow.python.tpu import tpu_function

from bert.errors import InputError

SUM_OVER_REPLICAS = "cross_replica_sum"
_RENAMED = "_lowered"
# What the TPU's compiler knows beside what the CPU's does, of the operations that replicated models use.
_TPU_ONLY = {"CrossReplicaSum"}
# What stands at the border of a graph: variables and features.
_BORDER = {"VarHandleOp", "Placeholder", "NoOp"}


@dataclasses.dataclass(frozen=True)
class ReplicaGraph:
    """The graph of one step as each replica runs it.

    Attributes:
      graph: a `tf.Graph`; features are placeholders, variables resources.
      features: the placeholders.
      operation: name of the operation that makes the step, or None.
      outputs: names of the tensors that leave the device.
    """

    graph: tf.Graph
    features: tuple
    operation: object
    outputs: tuple

    def definition(self):
        """The part of the graph that the step needs, as a GraphDef."""
        wanted = [name.split(":")[0] for name in self.outputs] + ([self.operation] if self.operation else [])
        return tf.graph_util.extract_sub_graph(self.graph.as_graph_def(), wanted)

    def nodes(self, definition):
        """Yields each node of a GraphDef of this graph, those of its functions too, with the operation it is of."""
        for node in definition.node:
            yield node, self.graph.get_operation_by_name(node.name)
        with self.graph.as_default():
            for function in definition.library.function:
                inside = function_def_to_graph.function_def_to_graph(function, include_library_functions=True)
                for node in function.node_def:
                    yield node, inside.get_operation_by_name(node.name)

    @property
    def replica_sum_bytes(self):
        """Bytes that each replica adds up with the others in a step, outside of loops."""
        return sum(
            tensor.shape.num_elements() * tensor.dtype.size
            for operation in self.graph.get_operations()
            if operation.type == "CrossReplicaSum"
            for tensor in operation.outputs
        )


def replica_graph(model_fn, feature_spec, replica_batch_size, num_replicas, mode=tf.estimator.ModeKeys.TRAIN, seed=0):
    """Builds the graph of a step as each replica of a TPU runs it.

    Args:
      model_fn: model function for TPUEstimator.
      feature_spec: dict from the features' names to `tf.FixedLenFeature`.
      replica_batch_size: examples of each replica.
      num_replicas: how many replicas there are.
      mode: a key of `tf.estimator.ModeKeys`.
      seed: graph-level random seed.
    """
    graph = tf.Graph()
    with graph.as_default(), tpu_function.tpu_shard_context(num_replicas):
        tf.set_random_seed(seed)
        tf.train.get_or_create_global_step()
        features = {
            name: tf.placeholder(
                tf.int32 if of.dtype == tf.int64 else of.dtype, [replica_batch_size, *of.shape], f"feature_{name}"
            )
            for name, of in feature_spec.items()
        }
        spec = model_fn(features, None, mode, {})
        if mode == tf.estimator.ModeKeys.TRAIN:
            outputs = spec.host_call[1]
        elif mode == tf.estimator.ModeKeys.EVAL:
            outputs = [*spec.eval_metrics[1].values(), spec.loss]
        else:
            outputs = spec.predictions.values()
        operation = spec.train_op.name if spec.train_op is not None else None
        return ReplicaGraph(graph, tuple(features.values()), operation, tuple(tensor.name for tensor in outputs))


def refused_operations(step):
    """What XLA would refuse in a step.

    Args:
      step: a `ReplicaGraph`.

    Returns:
      List of descriptions: operations that XLA does not have, and tensors whose shape is not known before the run.
    """
    # XLA's kernels are registered when it is first used.
    tf2.function(lambda: tf.zeros([]), jit_compile=True).experimental_get_compiler_ir()(stage="hlo")
    known = {kernel.op for kernel in kernels.get_all_registered_kernels().kernel if kernel.device_type == "XLA_CPU_JIT"}
    refused = []
    for _, operation in step.nodes(step.definition()):
        if operation.type not in known | _TPU_ONLY | _BORDER:
            refused.append(f"{operation.name}: XLA has no {operation.type}")
        # Within functions the shapes of variables are not known here; XLA knows them, and refuses others itself.
        for tensor in operation.outputs if operation.graph is step.graph else ():
            if not tensor.shape.is_fully_defined():
                refused.append(f"{tensor.name}: its shape {tensor.shape} is not known before the run")
    return refused


def lower(step, stage="hlo_serialized"):
    """Lowers a step to HLO.

    Its arguments are the features and then the variables; its results are the outputs and then the new values of the
    variables, which take the place of the old. Sums over replicas are custom calls of `SUM_OVER_REPLICAS`, since the
    CPU's front end does not know them.

    Args:
      step: a `ReplicaGraph`.
      stage: "hlo_serialized", or "optimized_hlo" to compile it for the CPU.

    Returns:
      A serialized HLO module, or the text of one.

    Raises:
      InputError: XLA refuses the step.
    """
    definition = step.definition()
    handles = [node for node in definition.node if node.op == "VarHandleOp"]
    # Variables whose memory is never touched, and so takes no room.
    variables = [
        tf2.Variable(
            tf.raw_ops.Empty(
                shape=tf.TensorShape(node.attr["shape"].shape).as_list(), dtype=node.attr["dtype"].type, init=False
            )
        )
        for node in handles
    ]
    for node, operation in step.nodes(definition):
        if node.op == "CrossReplicaSum":
            node.CopyFrom(_as_custom_call(node, operation.outputs[0]))
    _rename_functions(definition)
    for function in definition.library.function:
        context.context().add_function_def(function)
    used = {node.name for node in definition.node}
    body = tf.GraphDef(library=definition.library, versions=definition.versions)
    body.node.extend(node for node in definition.node if node.op not in ("VarHandleOp", "Placeholder"))

    @tf2.function(jit_compile=True, autograph=False)
    def run(*features):
        graph = tf.get_default_graph()
        inputs = {f"{node.name}:0": graph.capture(variable.handle) for node, variable in zip(handles, variables)}
        inputs.update((of.name, value) for of, value in zip(step.features, features) if of.op.name in used)
        wanted = [*step.outputs, *([step.operation] if step.operation else [])]
        found = tf.import_graph_def(body, input_map=inputs, return_elements=wanted, name="")
        with tf.control_dependencies(found[len(step.outputs) :]):
            return [tf.identity(output) for output in found[: len(step.outputs)]]

    specs = [tf.TensorSpec(placeholder.shape, placeholder.dtype) for placeholder in step.features]
    try:
        function = run.get_concrete_function(*specs)
        return compiler_ir.from_concrete_function(function)(stage=stage, device_name="/device:CPU:0")
    except ValueError as e:
        raise InputError(f"XLA refuses the step: {e}") from e


def _rename_functions(definition):
    """Gives the functions of a GraphDef new names; TensorFlow would take those that it knows by the old ones."""
    functions = definition.library.function
    names = {function.signature.name for function in functions}
    for function in functions:
        function.signature.name += _RENAMED
    for nodes in (definition.node, *(function.node_def for function in functions)):
        for node in nodes:
            for value in node.attr.values():
                if value.func.name in names:
                    value.func.name += _RENAMED


def record_memory(folder):
    """Lets XLA write into a folder what memory its compilations for the CPU take; call it before XLA is first used."""
    os.environ["XLA_FLAGS"] = f"{os.environ.get('XLA_FLAGS', '')} --xla_dump_to={folder} --xla_dump_hlo_as_text"


def cpu_memory(step, folder):
    """Compiles a step of a single replica for the CPU; returns the bytes of memory that it takes.

    Args:
      step: a `ReplicaGraph`.
      folder: as of `record_memory`.

    Raises:
      InputError: XLA refuses the step.
    """
    pattern = os.path.join(folder, "*a_inference_run*buffer-assignment.txt")
    before = set(glob.glob(pattern))
    lower(step, "optimized_hlo")
    [path] = set(glob.glob(pattern)) - before
    with open(path) as f:
        return int(re.search(r"Total bytes used: (\d+)", f.read())[1])


def _as_custom_call(node, result):
    call = tf.NodeDef(name=node.name, op="XlaCustomCall", input=[node.input[0]])
    call.attr["target_name"].s = SUM_OVER_REPLICAS.encode()
    call.attr["backend_config"].s = b""
    call.attr["T"].list.type.append(node.attr["T"].type)
    call.attr["dtype"].type = node.attr["T"].type
    call.attr["shape"].shape.CopyFrom(result.shape.as_proto())
    return call
