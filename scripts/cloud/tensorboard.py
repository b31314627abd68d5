"""make tensorboard: the curves of a run, served by the machine that trains and shown here through ssh."""

from scripts.cloud import prompt
from scripts.cloud.errors import UsageError
from scripts.cloud.gcloud import quoted

PORT = 6006
_PORT_THERE = 16006  # not one that a TensorBoard of somebody else is likely to have


def main(settings, gcloud):
    """Serves until Ctrl-C."""
    settings.need("VM")
    if not settings.out:
        raise UsageError("make tensorboard needs BUCKET=gs://name, or OUT=gs://folder of the run.")
    # Without this variable it would take the TPU from the training. Its faster reader knows no proxies and no
    # certificates but its own.
    words = [
        "env",
        "TPU_LOAD_LIBRARY=0",
        "bert-venv/bin/tensorboard",
        f"--logdir={settings.out}",
        f"--port={_PORT_THERE}",
    ]
    prompt.say(settings, f"http://localhost:{PORT} shows {settings.out} in a moment. Ctrl-C ends it.")
    return gcloud.shell.attach(gcloud.ssh_tunnel(PORT, _PORT_THERE, quoted([*words, "--load_fast=false"])))
