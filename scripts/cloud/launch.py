"""make pretrain, eval, finetune, predict, features on a machine elsewhere: copy, start detached, follow.

Run again, it follows a job that is running, goes on with one that was stopped or died, and says so if it is done.
"""

import json
import pathlib
import shlex
import uuid

from scripts.cloud import buckets, follow, prompt, sync
from scripts.cloud.errors import CloudError, UsageError
from scripts.cloud.vm import VM

# What runs for each verb, in the folder of the code. The variables of the Makefile are in its environment.
SCRIPTS = {
    "pretrain": ["scripts/pretrain.sh", "train"],
    "eval": ["scripts/pretrain.sh", "eval"],
    "finetune": ["scripts/finetune.sh"],
    "predict": ["scripts/finetune.sh", "predict"],
    "features": ["scripts/features.sh"],
}
# The file in the output folder that a verb leaves when it is done.
RESULTS = {"pretrain": "eval_results.txt", "eval": "eval_results.txt", "finetune": "eval_results.txt"}
REQUEST_FILE = "request.json"
# Of PJRT, with which TPUEstimator does not work. The images of PJRT set them.
_UNWANTED = ("NEXT_PLUGGABLE_DEVICE_USE_C_API", "TF_PLUGGABLE_DEVICE_LIBRARY_PATH")
_START_SECONDS = 300


def main(settings, gcloud):
    """Starts the job of a verb, or finds it, and follows its log to its end; returns the job's exit status."""
    check(settings)
    if buckets.look(settings, gcloud) is None and not settings.dry_run:
        raise UsageError(f"there is no bucket {settings.bucket}. Make it: {settings.command('cloud-up')}")
    vm = VM(settings, gcloud)
    job = vm.job_status()
    if job["state"] in ("running", "stopping"):
        if job["verb"] != settings.verb:
            raise UsageError(
                f"{job['verb']} is {job['state']} in the run {settings.run} on {settings.vm}. "
                f"Look: {settings.command('logs')} End it: {settings.command('stop')}"
            )
        prompt.say(settings, f"{job['verb']} is {job['state']} on {settings.vm} since {job['started']}.")
        if job["command"] != command(settings, gcloud, sync.plan(settings)[1]):
            prompt.say(settings, "It was started with other settings than those given now, and keeps its own.")
    else:
        if job["state"] == "finished" and _is_done(settings, gcloud, job):
            return 0
        if job["state"] in ("stopped", "died", "failed") and job["verb"] == settings.verb:
            prompt.say(settings, f"{job['verb']} {job['state']} at {job['ended'] or 'an unknown time'}; it goes on.")
        job = start(settings, gcloud)
    return follow.follow(settings, gcloud, job.get("log_start", 0))


def check(settings):
    """Refuses what cannot work on a machine elsewhere.

    Raises:
      UsageError: names the variable.
    """
    settings.need("VM", "BUCKET")
    if settings.verb not in SCRIPTS:
        raise UsageError(f"make {settings.verb} does not run on a machine elsewhere yet; it runs here.")
    if not settings.out.startswith("gs://"):
        raise UsageError(
            f"OUT={settings.out!r} would be on the disk of {settings.vm}, which is lost with it. Give OUT=gs://..., or "
            f"leave it out: {settings.prefix}/out"
        )
    try:
        shlex.split(settings.program.get("ARGS", ""))
    except ValueError as e:
        raise UsageError(f"ARGS={settings.program['ARGS']!r} cannot be read: {e}.") from None


def start(settings, gcloud):
    """Copies code and data and starts the job of a verb. Does not follow it.

    For `watch` it is the job that was started last, with the variables and the code of that time.

    Returns:
      The state of the job as `scripts/vm/job.py` tells it.

    Raises:
      UsageError: the machine is busy with another run.
      CloudError: the machine cannot be reached, or something cannot be copied.
    """
    url = f"{settings.job}/{REQUEST_FILE}"
    if settings.verb in SCRIPTS:
        request = {"verb": settings.verb, "variables": sync.send_data(settings, gcloud), "out": settings.out}
        request["code"] = sync.send_code(settings, gcloud)
        gcloud.storage_write(url, json.dumps(request, indent=1) + "\n")
    else:
        request = json.loads(gcloud.storage_cat(url) or "null")
        if settings.dry_run:
            request = {"verb": "pretrain", "variables": settings.program, "out": settings.out, "code": "CODE"}
        if request is None:
            raise UsageError(f"nothing was ever started in the run {settings.run}: make pretrain or finetune first.")
    sync.set_up(settings, gcloud, request["code"])
    words = command(settings, gcloud, request["variables"], request["verb"], request["out"])
    options = ["--id", uuid.uuid4().hex, "--verb", request["verb"], "--lock", lock_file(settings)]
    options += ["--mirror", settings.job]
    vm = VM(settings, gcloud)
    answer = vm.ask_job("start", *options, "--", *words, timeout=_START_SECONDS, assumed='{"state": "running"}')
    if answer["state"] == "busy":
        other = answer["holder"].rstrip("/").split("/")[-2]
        raise UsageError(
            f"{settings.vm} is busy with the run {other}, and a TPU serves one at a time. "
            f"Look: {settings.command('logs', RUN=other)} End it: {settings.command('stop', RUN=other)}"
        )
    if answer["state"] == "absent":
        raise CloudError(f"the code is not on {settings.vm} although it was copied: run it again.")
    prompt.say(settings, f"{request['verb']} {'started' if answer.get('started') else 'runs'} on {settings.vm}.")
    return answer


def lock_file(settings):
    """The file that the job holds, from the folder of the code. A TPU serves one program, whatever its run."""
    return "../../lock" if settings.has_tpu_vm else "../lock"


def command(settings, gcloud, variables, verb=None, out=None):
    """The command of the job, for the folder of the code on the machine."""
    verb, out = verb or settings.verb, out or settings.out
    if verb == "features" and not pathlib.PurePosixPath(out).suffix:  # for it OUT is a file
        out = f"{out}/features.jsonl"
    given = {"VENV": "../../../bert-venv", "RUN": settings.run, "OUT": out, **variables}
    given["TPU_NAME"] = settings.tpu_name
    if settings.has_tpu_vm:
        given["TPU_NAME"] = "local"
        if settings.tpu_type.is_pod:
            node = gcloud.tpu_describe() or {}
            addresses = [endpoint["ipAddress"] for endpoint in node.get("networkEndpoints", [])]
            given["TPU_NAME"] = ",".join(f"grpc://{address}:8470" for address in addresses)
            given["TPU_LOAD_LIBRARY"] = "0"  # the workers drive the chips, not this program
    unset = [word for name in _UNWANTED for word in ("-u", name)]
    assignments = [f"{name}={value}" for name, value in given.items() if value]
    return ["env", *unset, *assignments, *SCRIPTS[verb]]


def _is_done(settings, gcloud, job):
    """Whether a finished job is what is asked for, and its results are there. Prints them."""
    if job["verb"] != settings.verb or job["command"] != command(settings, gcloud, sync.plan(settings)[1]):
        return False
    results = gcloud.storage_cat(f"{settings.out}/{RESULTS[settings.verb]}") if settings.verb in RESULTS else None
    if results is None:
        return False
    prompt.say(settings, f"{settings.verb} is done since {job['ended']}; its output is in {settings.out}:")
    prompt.say(settings, results.strip())
    return True
