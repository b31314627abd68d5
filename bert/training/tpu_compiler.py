"""Compiles the HLO of a training step for a TPU that is not there, and tells its memory and its cost.

A program of its own, since libtpu and TensorFlow need different versions of NumPy: it runs in the environment of
requirements-preflight.txt and imports nothing of this project.

    python -I tpu_compiler.py MODULE TOPOLOGY CHIP_CONFIG REPLICAS

MODULE is a file with a serialized HLO module in which the target of custom calls for sums over replicas is
"cross_replica_sum", as `bert.training.tpu_lowering` makes it; TOPOLOGY is such as v3:2x2; CHIP_CONFIG is "default", or
"megacore" where the two cores of a chip work as one. Prints a JSON object. If the step does not compile, that has
"error", with the compiler's words, and nothing else.
"""

import json
import os
import re
import sys

os.environ.update(
    TPU_SKIP_MDS_QUERY="1",
    JAX_PLATFORMS="cpu",
    TPU_WORKER_HOSTNAMES="localhost",
    TPU_WORKER_ID="0",
    TPU_MIN_LOG_LEVEL="3",
    # There is no TPU for two processes to quarrel about.
    ALLOW_MULTIPLE_LIBTPU_LOAD="1",
)

import numpy as np
from jax._src.interpreters import mlir as jax_mlir
from jax._src.lib import xla_client
from jax.experimental import topologies
from jaxlib.mlir import ir


def compile_step(module_path, topology, chip_config, num_replicas):
    """Returns a dict of sizes in bytes, FLOPs, bytes accessed and estimated cycles, of one replica and one step."""
    config = {} if chip_config == "default" else {"chip_config_name": chip_config}
    described = topologies.get_topology_desc(platform="tpu", topology_name=topology, **config)
    devices = tuple(described.devices[:num_replicas])
    with open(module_path, "rb") as f:
        computation = xla_client.XlaComputation(f.read())
    text = xla_client._xla.mlir.xla_computation_to_mlir_module(computation)
    text = text.decode() if isinstance(text, bytes) else text
    text = _with_tpu_generator(_with_all_reduces(text, num_replicas))
    with jax_mlir.make_ir_context():
        module = jax_mlir.module_to_bytecode(ir.Module.parse(text))
    options = xla_client.CompileOptions()
    build = options.executable_build_options
    options.num_replicas = build.num_replicas = num_replicas
    options.num_partitions = build.num_partitions = 1
    places = np.array([[device.id] for device in devices], dtype=np.int32)
    options.device_assignment = build.device_assignment = xla_client.DeviceAssignment.create(places)
    executable = devices[0].client.compile(module, xla_client.DeviceList(devices), options)
    memory = executable.get_compiled_memory_stats()
    cost = executable.cost_analysis()
    return {
        "device_kind": devices[0].device_kind,
        "arguments": memory.argument_size_in_bytes,
        # Results that do not take the place of arguments.
        "results": memory.output_size_in_bytes - memory.alias_size_in_bytes,
        "temporaries": memory.temp_size_in_bytes,
        "code": memory.generated_code_size_in_bytes,
        "flops": cost["flops"],
        "bytes": cost["bytes accessed"],
        "cycles": _cycles(executable.hlo_modules()[0].to_string()),
    }


def _with_all_reduces(text, num_replicas):
    """Turns the custom calls that stand for sums over replicas into all-reduces."""
    group = ", ".join(map(str, range(num_replicas)))

    def all_reduce(match):
        result, argument, shape = match.groups()
        scalar = f"tensor<{shape.split('x')[-1]}>"
        return (
            f'{result} = "stablehlo.all_reduce"({argument}) '
            f"<{{replica_groups = dense<[[{group}]]> : tensor<1x{num_replicas}xi64>}}> ({{\n"
            f"^bb0(%left_term: {scalar}, %right_term: {scalar}):\n"
            f"  %both_terms = stablehlo.add %left_term, %right_term : {scalar}\n"
            f"  stablehlo.return %both_terms : {scalar}\n"
            f"}}) : (tensor<{shape}>) -> tensor<{shape}>"
        )

    call = r"(%\w+) = stablehlo\.custom_call @cross_replica_sum\((%\w+)\)[^:]*: \(tensor<(\S+)>\) -> tensor<\S+>"
    return re.sub(call, all_reduce, text)


def _with_tpu_generator(text):
    """Lets random bits be drawn by the TPU's own generator, as TensorFlow does there, rather than the CPU's Philox.

    Its state is the first two of Philox's three words.
    """

    def draw(match):
        new_state, bits, state, shape = match.groups()
        old, new, rest = (f"%{part}_of_{bits[1:]}" for part in ("state", "new_state", "rest"))
        return (
            f"{old} = stablehlo.slice {state} [0:2] : (tensor<3xui64>) -> tensor<2xui64>\n"
            f"{rest} = stablehlo.slice {state} [2:3] : (tensor<3xui64>) -> tensor<1xui64>\n"
            f"{new}, {bits} = stablehlo.rng_bit_generator {old}, algorithm = DEFAULT : "
            f"(tensor<2xui64>) -> (tensor<2xui64>, {shape})\n"
            f"{new_state} = stablehlo.concatenate {new}, {rest}, dim = 0 : "
            "(tensor<2xui64>, tensor<1xui64>) -> tensor<3xui64>"
        )

    generator = r"(%\w+), (%\w+) = stablehlo\.rng_bit_generator (%\w+), algorithm = +PHILOX : "
    return re.sub(generator + r"\(tensor<3xui64>\) -> \(tensor<3xui64>, (tensor<\w+>)\)", draw, text)


def _cycles(hlo):
    """The compiler's estimate of the cycles of a scheduled module; all-reduces have none."""
    own, loops, entry, name = {}, {}, None, None
    for line in hlo.splitlines():
        header = re.match(r"(ENTRY )?%?([\w.-]+) \(.*\{$", line)
        if header:
            name = header.group(2)
            own[name], loops[name] = 0, []
            entry = name if header.group(1) else entry
        estimate = re.search(r'"estimated_cycles":"(\d+)"', line)
        if estimate and name:
            own[name] += int(estimate.group(1))
        loop = re.search(r" while\(.*body=%?([\w.-]+)", line)
        if loop and name:
            times = re.search(r'"known_trip_count":\{"n":"(\d+)"', line)
            loops[name].append((loop.group(1), int(times.group(1)) if times else 1))

    def total(computation):
        return own[computation] + sum(times * total(body) for body, times in loops[computation])

    return total(entry)


if __name__ == "__main__":
    try:
        result = compile_step(*sys.argv[1:4], int(sys.argv[4]))
    except Exception as e:  # whatever the compiler refuses, in its words
        result = {"error": str(e)}
    print(json.dumps(result))
