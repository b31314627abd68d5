"""make tpu-smoke: a tiny BERT makes two steps on the machine, which shows that all of it works together."""

import dataclasses
import json
import time

from scripts.cloud import launch, prompt
from scripts.cloud.errors import CloudError

RUN = "tpu-smoke"
STEPS = 2


def main(settings, gcloud):
    """Trains, and says on what and how fast; returns the exit status of the training."""
    settings.need("VM", "BUCKET")
    now = time.strftime("%Y%m%d-%H%M%S", time.gmtime())
    program = {"STEPS": str(STEPS), "RECIPE": "sample"}
    smoke = dataclasses.replace(
        settings, verb="pretrain", run=RUN, out=f"{settings.bucket}/{RUN}/out-{now}", program=program
    )
    status = launch.main(smoke, gcloud)
    if status or settings.dry_run:
        return status
    record = json.loads(gcloud.storage_cat(f"{smoke.out}/run.json") or "{}")
    step, device = record.get("step"), record.get("device", "an unknown device")
    if step != STEPS:
        raise CloudError(f"the training ended without an error, but at step {step} instead of {STEPS}: {smoke.out}")
    prompt.say(settings, f"{settings.vm} works: {STEPS} steps on {device}, and a checkpoint in {smoke.out}.")
    return 0
