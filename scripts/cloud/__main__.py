"""python3 -m scripts.cloud VERB: runs one verb with the settings of the environment."""

import importlib
import os
import signal
import sys

from scripts.cloud.errors import CloudError, UsageError
from scripts.cloud.gcloud import Gcloud
from scripts.cloud.settings import Settings
from scripts.cloud.shell import Shell

# Each verb is a function `main(settings, gcloud, *arguments)` of a module, which returns an exit status or None.
MODULES = {
    "cloud-up": "cloud_up",
    "preflight": "preflight",
    "sync": "sync",
    "pretrain": "launch",
    "eval": "launch",
    "finetune": "launch",
    "predict": "launch",
    "features": "launch",
    "logs": "logs",
    "status": "status",
    "watch": "watch",
    "stop": "stop",
    "ssh": "ssh",
    "tensorboard": "tensorboard",
    "tpu-smoke": "tpu_smoke",
    "clean-cloud": "clean",
    "vertex": "vertex",
}
EXIT_USAGE = 2
EXIT_CLOUD = 3
EXIT_INTERRUPTED = 130


def main(verb, *arguments):
    """Runs a verb and returns its exit status."""
    # A terminal that is closed, or a polite kill, is like Ctrl-C: what is held is let go. nohup keeps its meaning.
    for number in (signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, signal.default_int_handler)
    try:
        if verb not in MODULES:
            raise UsageError(f"{verb!r} is not a verb of the cloud; those are {' '.join(MODULES)}.")
        settings = Settings.from_environment(os.environ, verb)
        module = importlib.import_module(f"scripts.cloud.{MODULES[verb]}")
        return module.main(settings, Gcloud(settings, Shell(settings.dry_run)), *arguments) or 0
    except UsageError as e:
        print(f"{verb}: {e}", file=sys.stderr, flush=True)
        return EXIT_USAGE
    except CloudError as e:
        print(f"{verb}: {e}", file=sys.stderr, flush=True)
        return EXIT_CLOUD
    except KeyboardInterrupt:
        return EXIT_INTERRUPTED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
