"""Several machines that train one model together, as the variable TF_CONFIG tells each of them.

Every machine runs the same program and has a whole copy of the model. The first, the chief, is the only one that has
the output folder: the others work in a folder of their own that is removed at the end, start from the chief's
checkpoint, which is sent to them, and take from the chief what only it can know. A machine that ends or cannot be
reached ends all others, since a step needs every one.
"""

import atexit
import contextlib
import json
import os
import re
import shutil
import socket
import tempfile
import threading
import time

import numpy as np
import tensorflow.compat.v1 as tf
from absl import logging

from bert import files
from bert.errors import InputError, TrainingError
from bert.training import checkpoints

VARIABLE = "TF_CONFIG"
EXAMPLE = '{"cluster": {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}, "task": {"type": "worker", "index": 0}}'
_JOBS = ("chief", "worker")  # in the order of their ranks
_ADDRESS = re.compile(r"[^\s:/,]+:\d+")
# Keys of collective operations, beyond those that a strategy counts up from 1.
_GROUP, _MESSAGE, _STOP = 1 << 20, 1 << 20, (1 << 20) + 1
_MESSAGE_BYTES = 64 << 20
PATIENCE = 600.0  # seconds that machines wait for each other to be started
_EXIT_TRAINING_ERROR = 3


class Done(SystemExit):
    """The part of a machine that is not the chief is done: the program ends with status 0."""

    def __init__(self):
        super().__init__(0)


class Cluster:
    """The machines of a training, and this one's place among them.

    Attributes:
      addresses: "host:port" of every machine, the chief's first.
      rank: place of this machine among them.
    """

    def __init__(self, jobs, job, index):
        """Takes the jobs ("chief", "worker") with their addresses, and which task of which job this machine is."""
        self._jobs, self._job, self._index = jobs, job, index
        self.addresses = [address for kind in _JOBS for address in jobs.get(kind, [])]
        self.rank = self.addresses.index(jobs[job][index])
        self._server = None
        self._watch = None

    @property
    def is_chief(self):
        """Whether this machine has the output folder."""
        return self.rank == 0

    @property
    def master(self):
        """Address of the server that executes this machine's part of a step."""
        return self._server.target

    def start(self, num_gpus, session_config):
        """Starts this machine's server, and waits until the other machines have started theirs.

        Args:
          num_gpus: number of GPUs that each machine has; 0: its CPU computes.
          session_config: a `tf.ConfigProto`.

        Returns:
          The `tf.distribute` strategy by which all devices of all machines share each batch.

        Raises:
          InputError: the server cannot use its address.
          TrainingError: a machine has not been started.
        """
        resolver = tf.distribute.cluster_resolver.SimpleClusterResolver(
            tf.train.ClusterSpec(self._jobs),
            "",
            self._job,
            self._index,
            num_accelerators={"GPU": num_gpus},
            rpc_layer="grpc",
        )
        with tf.Graph().as_default():
            strategy = tf.distribute.experimental.MultiWorkerMirroredStrategy(cluster_resolver=resolver)
        # The input never ends: machines need not tell each other before each step that there is more.
        strategy.extended.experimental_enable_get_next_as_optional = False
        self._config = strategy.update_config_proto(session_config)
        try:
            self._server = tf.distribute.Server(
                tf.train.ClusterSpec(self._jobs), self._job, self._index, "grpc", self._config
            )
        except tf.errors.OpError as e:
            address = self.addresses[self.rank]
            raise InputError(f"{VARIABLE}: no server can be started at {address}: {e.message}") from e
        # The chief knows all machines, and the others the chief.
        others = self.addresses[1:] if self.is_chief else self.addresses[:1]
        for address in others:
            _wait_for(address)
        self._watch = _Watch(others)
        self._watch.start()
        return strategy

    def sum(self, tensor, key):
        """Adds up an int32 tensor over the machines; `key` tells the operation from others of the graph."""
        with tf.device(f"/job:{self._job}/task:{self._index}/device:CPU:0"):
            return tf.raw_ops.CollectiveReduce(
                input=tensor,
                group_size=len(self.addresses),
                group_key=_GROUP,
                instance_key=key,
                merge_op="Add",
                final_op="Id",
                subdiv_offsets=[0],
            )

    def count_stops(self, stop):
        """The number of machines that are told to stop, int32 scalar, where `stop` is 1 at those and 0 elsewhere."""
        return self.sum(stop, _STOP)

    def agree(self, value=None):
        """Gives every machine the chief's value, when all of them have come to ask for it.

        Args:
          value: what JSON can hold; of machines that are not the chief it is ignored.
        """
        return json.loads(self._from_chief(json.dumps(value).encode()))

    def share(self, folder):
        """Gives every machine the chief's newest checkpoint, when all of them have come to ask for it.

        Args:
          folder: the output folder, or what another machine has in its place.
        """
        checkpoint, step = checkpoints.latest(folder)
        names = []
        if checkpoint:
            prefix = os.path.basename(checkpoint)
            names = [name for name in files.list_folder(folder) if name.startswith(f"{prefix}.")]
        step, sizes = self.agree([step, {name: files.size(os.path.join(folder, name)) for name in names}])
        for name, size in sizes.items():
            path = os.path.join(folder, name)
            with files.open_file(path) if self.is_chief else open(path, "wb") as f:
                for _ in range(0, size, _MESSAGE_BYTES):
                    part = self._from_chief(f.read(_MESSAGE_BYTES) if self.is_chief else b"")
                    if not self.is_chief:
                        f.write(part)
        if sizes and not self.is_chief:
            checkpoints.write_state(folder, [step])

    def leave(self):
        """Called when the last step is made: ends the watch over the others, each of which may end now.

        Raises:
          Done: this machine is not the chief.
        """
        with contextlib.suppress(TrainingError):  # another machine has ended before its answer was sent
            self.agree()
        self._watch.stop()
        if not self.is_chief:
            logging.info("the training is done, and with it the part of this machine")
            raise Done

    def _from_chief(self, content):
        """The chief's bytes, at every machine."""
        length = len(content) if self.is_chief else 0
        with tf.Graph().as_default():
            part = tf.placeholder(tf.int32, [None])
            total = self.sum(part, _MESSAGE)
            with tf.Session(self.master, config=self._config) as session:

                def run(values):
                    try:
                        return _interruptible(lambda: session.run(total, {part: values}))
                    except tf.errors.OpError as e:
                        raise TrainingError(gone()) from e

                length = int(run([length])[0])
                values = np.zeros([-(-length // 4)], np.int32)
                if self.is_chief:
                    values = np.frombuffer(content.ljust(4 * len(values), b"\0"), np.int32)
                return run(values).tobytes()[:length] if length else b""


def read():
    """The `Cluster` that TF_CONFIG describes; None if it is not set or names only this machine.

    Raises:
      InputError: it cannot be used; the message says why.
    """
    text = os.environ.get(VARIABLE)
    if not text:
        return None
    try:
        config = json.loads(text)
        jobs = {job: list(addresses) for job, addresses in config["cluster"].items()}
        job, index = config["task"]["type"], int(config["task"]["index"])
    except (ValueError, KeyError, TypeError, AttributeError) as e:
        raise InputError(f"{VARIABLE}={text}: {type(e).__name__}: {e}. It must be JSON like {EXAMPLE}.") from None
    for other in {*jobs, job} - set(_JOBS):
        raise InputError(
            f"{VARIABLE} names the job {other!r}: here there are only {' and '.join(_JOBS)}. Every machine trains, and "
            "the chief, or else worker 0, evaluates too."
        )
    if len(jobs.get("chief", [])) > 1:
        raise InputError(f"{VARIABLE} names {len(jobs['chief'])} chiefs: there can be one.")
    if not 0 <= index < len(jobs.get(job, [])):
        known = ", ".join(f"{kind} {i}" for kind in _JOBS for i in range(len(jobs.get(kind, []))))
        raise InputError(f"{VARIABLE}: this machine is {job} {index}, but the cluster has {known or 'no tasks'}.")
    addresses = [address for found in jobs.values() for address in found]
    for address in addresses:
        if not _ADDRESS.fullmatch(str(address)):
            raise InputError(f"{VARIABLE}: {address!r} is not an address such as 10.0.0.1:2222.")
        if addresses.count(address) > 1:
            raise InputError(f"{VARIABLE} names {address} twice: every machine has an address of its own.")
    return Cluster(jobs, job, index) if len(addresses) > 1 else None


def scratch_folder():
    """Makes the folder that a machine has in place of the output folder; it is removed when the program ends."""
    folder = tempfile.mkdtemp(prefix="bert_worker_")
    atexit.register(shutil.rmtree, folder, ignore_errors=True)
    return folder


def _is_reachable(address):
    host, _, port = address.rpartition(":")
    try:
        socket.create_connection((host, int(port)), timeout=5.0).close()
    except OSError:
        return False
    return True


def _wait_for(address):
    start = reported = time.monotonic()
    while not _is_reachable(address):
        now = time.monotonic()
        if now - start > PATIENCE:
            raise TrainingError(
                f"{address} of {VARIABLE} has not answered for {PATIENCE:.0f} seconds. Start the same command on every "
                "machine, and let them reach each other's ports."
            )
        if reported == start or now - reported > 60:
            logging.info("waiting for %s", address)
            reported = now
        time.sleep(0.5)


class _Watch(threading.Thread):
    """Ends this process if another machine has ended.

    Where TensorFlow notices it, the main thread ends first and says so; collectives on GPUs wait for ever.
    """

    def __init__(self, addresses, pause=3.0, tries=3, grace=15.0):
        super().__init__(daemon=True)
        self._addresses, self._pause, self._tries, self._grace = addresses, pause, tries, grace
        self._stopped = threading.Event()

    def stop(self):
        """Ends the watch."""
        self._stopped.set()

    def run(self):
        failures = dict.fromkeys(self._addresses, 0)
        while not self._stopped.wait(self._pause):
            for address in self._addresses:
                failures[address] = 0 if _is_reachable(address) else failures[address] + 1
                if failures[address] == self._tries:
                    logging.error("%s", gone(address))
                    if not self._stopped.wait(self._grace):
                        os._exit(_EXIT_TRAINING_ERROR)


def gone(address="Another machine of the training"):
    """What a person is told when a machine has ended."""
    return (
        f"{address} has ended or cannot be reached: the training stops on all machines. Start it again on each; it "
        "goes on from the last checkpoint."
    )


def _interruptible(function):
    """Calls a function that may wait long in TensorFlow, where no signal is heard, in a thread."""
    outcome = []

    def call():
        try:
            outcome.append((function(), None))
        except Exception as e:
            outcome.append((None, e))

    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    while thread.is_alive():
        thread.join(0.2)
    result, error = outcome[0]
    if error:
        raise error
    return result
