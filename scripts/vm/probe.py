"""What a machine is like on which the program is to run, as one line of JSON. Runs there, with its own Python.

python3 probe.py gs://bucket/prefix

Standard library only, but for the TensorFlow that it looks for. The bucket is tried by writing, reading and deleting an
object under the prefix.
"""

import glob
import importlib
import json
import mmap
import os
import platform
import shutil
import subprocess
import sys
import time


def main(prefix):
    """Prints what there is."""
    # Without this, importing TensorFlow would take the TPU from a training that may be using it.
    os.environ["TPU_LOAD_LIBRARY"] = "0"
    os.environ["TF_CPP_MIN_LOG_LEVEL"] = "2"
    answer = {
        "time": time.time(),
        "host": platform.node(),
        "python": platform.python_version(),
        "free_bytes": shutil.disk_usage(os.path.expanduser("~")).free,
        "devices": len(glob.glob("/dev/accel*")),
        "gpus": len(glob.glob("/dev/nvidia[0-9]*")),
        "rehearsal": os.environ.get("REHEARSAL_DEVICE", ""),
        "bucket": try_bucket(f"{prefix}/job/probe-{platform.node()}-{os.getpid()}"),
        **tensorflow(),
    }
    print(json.dumps(answer))


def tensorflow():
    """Which TensorFlow there is, and whether it could drive a TPU of this machine."""
    try:
        package = importlib.import_module("tensorflow")
        importlib.import_module("tensorflow_estimator")
    except Exception as e:  # a broken installation fails in any way
        return {"tensorflow": None, "tensorflow_error": f"{type(e).__name__}: {e}"[:300]}
    folder = os.path.dirname(package.__file__)
    return {"tensorflow": package.__version__, "tensorflow_folder": folder, "tpu_runtime": has_tpu_runtime(folder)}


def has_tpu_runtime(folder):
    """Whether a TensorFlow was built for TPUs: its libraries then know the variable that keeps them from the TPU."""
    patterns = ("libtensorflow*.so*", "python/*.so", "../libtensorflow*.so*")
    for path in (path for pattern in patterns for path in glob.glob(os.path.join(folder, pattern))):
        with open(path, "rb") as f, mmap.mmap(f.fileno(), 0, access=mmap.ACCESS_READ) as content:
            if content.find(b"TPU_LOAD_LIBRARY") >= 0:
                return True
    return False


def try_bucket(url):
    """What went wrong in writing, reading and deleting an object; empty if nothing did."""
    if shutil.which("gcloud"):
        write, read, delete = (["gcloud", "storage", verb] for verb in ("cp", "cat", "rm"))
    elif shutil.which("gsutil"):
        write, read, delete = (["gsutil", verb] for verb in ("cp", "cat", "rm"))
    else:
        return "neither gcloud nor gsutil is installed"
    written = _run("writing", [*write, "-", url], "probe")
    if written:
        return written
    return _run("reading", [*read, url]) or _run("deleting", [*delete, url])


def _run(what, command, text=""):
    """Why a command failed; empty if it did not."""
    try:
        result = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120)
    except subprocess.TimeoutExpired:
        return f"{what} {command[-1]}: no answer within 120 s"
    return f"{what} {command[-1]}: {result.stderr.strip()[-500:]}" if result.returncode else ""


if __name__ == "__main__":
    main(sys.argv[1])
