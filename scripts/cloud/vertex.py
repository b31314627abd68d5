"""make vertex: the program as a custom job of Vertex AI, which makes a TPU VM for it and removes it afterwards.

A job is a machine of type `cloud-tpu` and a container in which a script of this project runs with the variables of the
Makefile. Sources: https://cloud.google.com/vertex-ai/docs/training/configure-compute, and training-with-tpu-vm beside
it, as of 2026.
"""

import dataclasses
import datetime
import glob
import hashlib
import json
import pathlib
import re
import sys
import tempfile

from scripts.cloud import prices, prompt
from scripts.cloud.errors import CloudError, UsageError
from scripts.cloud.gcloud import quoted

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What scripts/vertex/gcloudignore lets into the image.
CONTENT = ("Makefile", "requirements.txt", "bert", "data", "scripts")
_PATHS = ("CORPUS", "EVAL_CORPUS", "VOCAB", "CONFIG", "RECIPE", "INIT", "DATA_DIR")
_BASE = "python:3.10-slim-bookworm"
_POD_BASE = "us-docker.pkg.dev/vertex-ai/training/tf-tpu-pod-base-cp310:latest"
_ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED", "JOB_STATE_EXPIRED")
_PAUSE_SECONDS = 10
_LAG_SECONDS = 5  # that a line of the log may take until it can be read
_UNPRINTABLE = re.compile("[^ -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
EXIT_FAILED = 3


def main(settings, gcloud):
    """Submits the job, unless one of this run is under way, and follows its log to its end."""
    settings.need("BUCKET")
    if not settings.job_file:
        _check(settings)
    active = [
        job
        for job in gcloud.custom_jobs()
        if job.get("labels", {}).get("run") == settings.labels["run"] and job.get("state") not in _ENDED
    ]
    if active:
        prompt.say(settings, f"A job of the run {settings.run} is {_state(active[0])} already.")
        return _follow(settings, gcloud, active[0]["name"], since=_minutes_ago(10))
    return _follow(settings, gcloud, _submit(settings, gcloud))


def machine(generation, cores):
    """The machine of a job, as its specification has it.

    Args:
      generation: `v2` or `v3`.
      cores: 8, or the size of a pod slice.
    """
    return {"machineType": "cloud-tpu", "acceleratorType": f"TPU_{generation.upper()}", "acceleratorCount": cores}


def job(settings, image, variables, seconds=None):
    """The specification of a job that trains.

    Args:
      settings: a `Settings`.
      image: address of the image of this project.
      variables: dict of the variables of the Makefile that the script reads.
      seconds: after how long Vertex AI ends the job; None: its own limit, which is a week.

    Returns:
      A dict, a CustomJobSpec of the API.
    """
    tpu_type = settings.tpu_type
    variables = {"RUN": settings.run, "OUT": settings.out, **variables}
    if tpu_type.is_pod:
        # The program finds the hosts by TPU_CONFIG, and keeps off the cores of its own host.
        variables["TPU_LOAD_LIBRARY"] = "0"
    else:
        variables["TPU_NAME"] = "local"
    command = ["scripts/finetune.sh"] if settings.program.get("TASK") else ["scripts/pretrain.sh", "train"]
    container = {
        "imageUri": image,
        "args": command,
        # Vertex AI would take $(NAME) for another variable.
        "env": [{"name": name, "value": value.replace("$(", "$$(")} for name, value in sorted(variables.items())],
    }
    pool = {"machineSpec": machine(tpu_type.generation, tpu_type.cores), "replicaCount": 1, "containerSpec": container}
    spec = {"workerPoolSpecs": [pool]}
    if seconds:
        spec["scheduling"] = {"timeout": f"{seconds}s"}
    return spec


def as_yaml(value, indent=0):
    """Dicts, lists, texts and numbers as YAML in block style, ending in a newline."""
    lines = []
    pairs = value.items() if isinstance(value, dict) else enumerate(value)
    for key, entry in pairs:
        head = f"{key}:" if isinstance(value, dict) else "-"
        if entry and isinstance(entry, (dict, list)):
            inner = as_yaml(entry, indent + 2)
            # A list's entry begins on the line of its hyphen.
            lines.append(f"{head}\n{inner}" if isinstance(value, dict) else f"- {inner.lstrip()}")
        else:
            # A text of JSON is one of YAML, but for what YAML does not take for printable.
            text = _UNPRINTABLE.sub(lambda found: f"\\u{ord(found[0]):04x}", json.dumps(entry, ensure_ascii=False))
            lines.append(f"{head} {text}\n")
    return "".join(" " * indent + line for line in lines)


def _submit(settings, gcloud):
    """Asks, makes the image if there is none of this code, submits the job and returns its name."""
    if settings.job_file:
        text, image = _read(settings.job_file), ""
        prompt.confirm(settings, f"Submit {settings.job_file} to Vertex AI in {gcloud.region}, as {settings.run}")
    else:
        on_demand = dataclasses.replace(settings, on_demand=True)  # Vertex AI has TPUs of no other kind
        image = settings.container or image_address(settings, gcloud)
        text = as_yaml(job(settings, image, settings.program, _seconds(on_demand)))
        what = f"Train {settings.run} on Vertex AI, on a {settings.tpu_type.name} in {gcloud.region}"
        prompt.confirm(settings, f"{what}: {prices.describe(on_demand)}, and Vertex AI's own fee, until it ends")
        if not settings.container:
            _make_image(settings, gcloud, image)
    if settings.dry_run:
        print(f"cat >job.yaml <<'END'\n{text}END", flush=True)
        return gcloud.custom_job_create("job.yaml")
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "job.yaml")
        path.write_text(text, encoding="utf-8")
        return gcloud.custom_job_create(str(path))


def _check(settings):
    """Refuses what would fail only when the job is under way."""
    if settings.tpu_type.generation not in ("v2", "v3"):
        raise UsageError(
            f"TPU_TYPE={settings.tpu_type.name}: of the TPUs of Vertex AI only v2 and v3 can run TPUEstimator. Use "
            "v2-8, v3-8 or one of their pod slices, or a TPU VM of your own: make cloud-up."
        )
    for name in _PATHS:
        value = settings.program.get(name, "")
        here = [] if "://" in value else glob.glob(value) or glob.glob(f"{value}.index")  # a checkpoint is a prefix
        in_image = any(pathlib.Path(path).resolve().is_relative_to(ROOT / part) for path in here for part in CONTENT)
        if here and (settings.tpu_type.is_pod or not in_image):
            raise UsageError(
                f"{name}={value} is on this machine, which a job of Vertex AI cannot see. Copy it to the bucket and "
                f"name it there: gcloud storage cp --recursive {quoted([value])} {settings.bucket}/"
            )
    if settings.tpu_type.is_pod and not (settings.program.get("TASK") or settings.program.get("CORPUS")):
        raise UsageError("CORPUS=gs://... is needed: the hosts of a pod slice cannot see the sample corpus.")


def _seconds(settings):
    """After how many seconds MAX_HOURS or MAX_COST is reached, or None."""
    hours = [settings.max_hours] if settings.max_hours else []
    hours += [settings.max_cost / prices.per_hour(settings)] if settings.max_cost else []
    return round(min(hours) * 3600) if hours else None


def image_address(settings, gcloud):
    """Address of the image of this code, whose tag follows from all that is in it."""
    digest = hashlib.sha256()
    for content in CONTENT:
        for path in sorted([ROOT / content, *(ROOT / content).rglob("*")]):
            if path.is_file() and "__pycache__" not in path.parts:
                digest.update(f"{path.relative_to(ROOT)}\0{path.stat().st_size}\0".encode())
                digest.update(path.read_bytes())
    tag = f"{'pod-' if settings.tpu_type.is_pod else ''}{digest.hexdigest()[:16]}"
    return f"{gcloud.images_repository}/bert:{tag}"


def _make_image(settings, gcloud, image):
    if image.rpartition(":")[2] in gcloud.image_tags():
        return
    gcloud.images_repository_create()
    prompt.say(settings, f"Making the image {image}, once for each state of the code; this takes some minutes.")
    if gcloud.shell.attach(gcloud.image_build(image, _POD_BASE if settings.tpu_type.is_pod else _BASE)):
        raise CloudError("the image could not be made; the lines above say why.")


def _follow(settings, gcloud, name, since=""):
    """Shows the log until the job has ended, and returns the status that its program ended with."""
    prompt.say(settings, f"The log of {name} follows; Ctrl-C leaves the job alone.")
    shown = set()
    try:
        while True:
            found = gcloud.custom_job_describe(name)
            if found is None:
                raise CloudError(f"the job {name} does not exist any more.")
            ended = found.get("state") in _ENDED
            if ended:
                gcloud.shell.sleep(_LAG_SECONDS)
            for entry in gcloud.custom_job_log(name, since):
                if entry["insertId"] not in shown:
                    print(entry.get("textPayload") or entry.get("jsonPayload", {}).get("message", ""), flush=True)
                    shown.add(entry["insertId"])
                since = entry["timestamp"]
            if ended:
                return _status(settings, found)
            gcloud.shell.sleep(_PAUSE_SECONDS)
    except (KeyboardInterrupt, CloudError):
        print(
            f"\nThe job is left alone. Follow it again: {settings.command('vertex')}\n"
            f"End it: {quoted(gcloud.custom_job_cancel(name))}",
            flush=True,
        )
        raise


def _status(settings, found):
    """The exit status of a job that has ended."""
    if found["state"] == _ENDED[0]:
        prompt.say(settings, f"The job is done. Results: {settings.out}")
        return 0
    message = f"the job ended as {_state(found)}: {found.get('error', {}).get('message', 'no reason is given')}"
    status = re.search(r"non-zero status of (\d+)", message)
    print(f"vertex: {message}", file=sys.stderr, flush=True)
    return int(status[1]) if status else EXIT_FAILED


def _minutes_ago(minutes):
    then = datetime.datetime.now(datetime.timezone.utc) - datetime.timedelta(minutes=minutes)
    return then.strftime("%Y-%m-%dT%H:%M:%SZ")


def _state(found):
    return found.get("state", "UNKNOWN").replace("JOB_STATE_", "")


def _read(path):
    try:
        return pathlib.Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"JOB={path} cannot be read: {e}") from None
