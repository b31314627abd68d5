"""make stop: the job ends after its step, with a checkpoint; the machine stays."""

import json
import time

from scripts.cloud import prompt
from scripts.cloud.errors import CloudError
from scripts.cloud.vm import VM

# For what a TPU's loop of steps and the writing of a checkpoint take.
_PATIENCE_SECONDS = 600
_LOOK_SECONDS = 20


def main(settings, gcloud):
    """Stops the job, and says with which checkpoint."""
    settings.need("VM")
    job = stop(settings, gcloud)
    if job["state"] == "absent":
        prompt.say(settings, f"Nothing was started in the run {settings.run} on {settings.vm} yet.")
        return
    step = _checkpoint(settings, gcloud)
    saved = f"the last checkpoint is that of step {step}" if step is not None else "there is no checkpoint yet"
    prompt.say(settings, f"{job['verb']} is {job['state']} since {job['ended'] or 'an unknown time'}; {saved}.")
    if job["state"] != "finished":
        prompt.say(settings, f"Go on: {settings.command(job['verb'])}")
    prompt.say(settings, f"{settings.vm} is still there and costs: {settings.command('clean-cloud')}")


def stop(settings, gcloud):
    """Asks the job to stop and waits for its end; one that does not end in ten minutes is killed.

    Returns:
      The state of the job as `scripts/vm/job.py` tells it.

    Raises:
      CloudError: the machine cannot be reached.
    """
    vm = VM(settings, gcloud)
    end, lost = time.monotonic() + _PATIENCE_SECONDS, 0
    progress = prompt.Progress(settings, f"{settings.run} makes its step to the end and saves a checkpoint")
    while True:
        try:
            job = vm.ask_job("stop", "--wait", _LOOK_SECONDS, assumed='{"state": "absent"}')
        except CloudError as e:
            # A connection that breaks again and again takes all the time there is for an answer. Only once more: a
            # machine that costs may be waiting to be deleted.
            lost += 1
            if e.kind != "unreachable" or lost > 1:
                raise
            prompt.say(settings, f"{settings.vm} has not answered; it is asked once more.")
            continue
        if job["state"] not in ("running", "stopping"):
            return job
        if time.monotonic() > end:
            break
        progress()
    prompt.say(settings, f"It has not ended in {_PATIENCE_SECONDS // 60} minutes, and is killed.")
    job = vm.ask_job("kill", "--wait", _LOOK_SECONDS)
    if job["state"] in ("running", "stopping"):
        raise CloudError(f"the job cannot be killed. Look: {settings.command('ssh')}")
    return job


def _checkpoint(settings, gcloud):
    """The step of the last checkpoint, or None."""
    if not settings.out.startswith("gs://"):
        return None
    record = json.loads(gcloud.storage_cat(f"{settings.out}/run.json") or "{}")
    return (record.get("last_checkpoint") or {}).get("step")
