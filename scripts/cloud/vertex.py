"""make vertex: the program as a custom job of Vertex AI, which makes a TPU VM for it and removes it afterwards.

A job is a machine of type `cloud-tpu` and a container, in which scripts/vertex/run.py fetches the code from the bucket
and runs a script of it with the variables of the Makefile. Sources:
https://cloud.google.com/vertex-ai/docs/training/configure-compute, and training-with-tpu-vm beside it, as of 2026.
"""

import dataclasses
import datetime
import hashlib
import json
import pathlib
import re
import sys
import tempfile

from scripts.cloud import buckets, launch, prices, prompt, sync, tpu_types
from scripts.cloud.errors import CloudError, UsageError
from scripts.cloud.gcloud import Gcloud, quoted
from scripts.cloud.settings import label

_IMAGE_SOURCES = ("requirements.txt", "scripts/vertex/Dockerfile", "scripts/vertex/run.py")
_RUN = ["python3", "/opt/bert/run.py"]
_PYTHON = "/opt/bert/venv/bin/python"
_BASE = "python:3.10-slim-bookworm"
_POD_BASE = "us-docker.pkg.dev/vertex-ai/training/tf-tpu-pod-base-cp310:latest"
_ENDED = ("JOB_STATE_SUCCEEDED", "JOB_STATE_FAILED", "JOB_STATE_CANCELLED", "JOB_STATE_EXPIRED")
_PAUSE_SECONDS = 10
_LAG_SECONDS = 5  # that a line of the log may take until it can be read
_UNPRINTABLE = re.compile("[^ -~\xa0-\u2027\u202a-\ud7ff\ue000-\ufefe\uff00-\ufffd\U00010000-\U0010ffff]")
EXIT_FAILED = 3


def main(settings, gcloud):
    """Submits the job, unless one of this run is under way, and follows its log to its end."""
    settings, old = _read_old(settings, gcloud)
    gcloud = Gcloud(settings, gcloud.shell)
    if not settings.job_file or (old and not old.image):
        settings.need("BUCKET")
        _check(settings, old)
    active = [
        job
        for job in gcloud.custom_jobs()
        if job.get("labels", {}).get("run") == settings.labels["run"] and is_active(job)
    ]
    if active:
        prompt.say(settings, f"A job of the run {settings.run} is {_state(active[0])} already.")
        return _follow(settings, gcloud, active[0]["name"], since=_minutes_ago(10))
    return _follow(settings, gcloud, _submit(settings, gcloud, old))


def is_active(job):
    """Whether a job, as the API describes it, has not ended."""
    return job.get("state") not in _ENDED


def _read_old(settings, gcloud):
    """The settings, and what JOB asks for if it is a configuration of AI Platform, or None."""
    if not settings.job_file:
        return settings, None
    from scripts.cloud import ai_platform  # needs PyYAML, which only this way needs

    old = ai_platform.read(settings.job_file)
    if old is None:
        return settings, None
    if old.region and old.region != gcloud.region:
        raise UsageError(f"{settings.job_file} has region {old.region}, and ZONE is {gcloud.zone}: give a ZONE there.")
    named = {"run": label(old.name)} if old.name and settings.run == "pretrain" else {}
    return dataclasses.replace(settings, tpu_type=tpu_types.parse(f"{old.generation}-{old.cores}"), **named), old


def _check(settings, old):
    """Refuses what would fail only when the job is under way."""
    if settings.tpu_type.generation not in ("v2", "v3"):
        raise UsageError(
            f"TPU_TYPE={settings.tpu_type.name}: of the TPUs of Vertex AI only v2 and v3 can run TPUEstimator. Use "
            "v2-8, v3-8 or one of their pod slices, or a TPU VM of your own: make cloud-up."
        )
    if old:
        program = sync.ROOT / "bert" / f"{_program(old)}.py"
        if not (program.is_file() and "program.run(" in program.read_text(encoding="utf-8")):
            raise UsageError(
                f"{old.module_line}: pythonModule {old.module} is not a program of this project. It ran in a prebuilt "
                "container of AI Platform, and Vertex AI has none for TPUs any more: put it into an image, and name "
                "that with masterConfig.imageUri."
            )
        return
    if settings.tpu_type.is_pod and not (settings.program.get("TASK") or settings.program.get("CORPUS")):
        raise UsageError("CORPUS is needed: the hosts of a pod slice do not have the sample corpus.")
    sync.plan(settings)


def _submit(settings, gcloud, old):
    """Asks, copies and makes what the job needs, submits it and returns its name."""
    if settings.job_file and old is None:
        prompt.confirm(settings, f"Submit {settings.job_file} to Vertex AI in {gcloud.region}, as {settings.run}")
        return gcloud.custom_job_create(settings.job_file)
    on_demand = dataclasses.replace(settings, on_demand=True)  # Vertex AI has TPUs of no other kind
    for note in old.notes if old else ():
        prompt.say(settings, note)
    needs_bucket = not (old and old.image)
    missing = needs_bucket and buckets.look(settings, gcloud) is None
    what = f"Make the private bucket {settings.bucket} in {gcloud.region} and train" if missing else "Train"
    what += f" {settings.run} on Vertex AI, on a {settings.tpu_type.name} in {gcloud.region}"
    prompt.confirm(settings, f"{what}: {prices.describe(on_demand)}, and Vertex AI's own fee, until it ends")
    if missing:
        gcloud.bucket_create()
    container = _old_container(settings, gcloud, old) if old else _container(settings, gcloud)
    text = as_yaml(specification(settings.tpu_type, container, _seconds(on_demand), old.more if old else {}))
    labels = old.labels if old else {}
    if settings.dry_run:
        print(f"cat >job.yaml <<'END'\n{text}END", flush=True)
        return gcloud.custom_job_create("job.yaml", labels)
    with tempfile.TemporaryDirectory() as folder:
        path = pathlib.Path(folder, "job.yaml")
        path.write_text(text, encoding="utf-8")
        return gcloud.custom_job_create(str(path), labels)


def specification(tpu_type, container, seconds=None, more=None):
    """The specification of a job, as a dict: a CustomJobSpec of the API.

    Args:
      tpu_type: a `TpuType`.
      container: dict, a ContainerSpec of the API.
      seconds: after how long Vertex AI ends the job; None: its own limit, which is a week.
      more: further fields.
    """
    kind = f"TPU_{tpu_type.generation.upper()}"
    machine = {"machineType": "cloud-tpu", "acceleratorType": kind, "acceleratorCount": tpu_type.cores}
    spec = {"workerPoolSpecs": [{"machineSpec": machine, "replicaCount": 1, "containerSpec": container}]}
    return {**spec, **(more or {}), **({"scheduling": {"timeout": f"{seconds}s"}} if seconds else {})}


def _container(settings, gcloud):
    """The container that runs a script of this project with the variables of the Makefile."""
    script = launch.SCRIPTS["finetune" if settings.program.get("TASK") else "pretrain"]
    variables = {"RUN": settings.run, "OUT": settings.out, **sync.send_data(settings, gcloud)}
    if not settings.tpu_type.is_pod:
        variables["TPU_NAME"] = "local"
    return _with_code(settings, gcloud, script, variables)


def _old_container(settings, gcloud, old):
    """The container that runs what a configuration of AI Platform names."""
    if old.image:
        arguments = old.arguments + ([f"--job-dir={old.job_dir}"] if old.job_dir else [])
        container = {"imageUri": settings.container or old.image, "command": old.command, "args": arguments}
        return {name: value for name, value in container.items() if value}
    arguments = [word for word in old.arguments if not re.match(r"--?(tpu|tpu_name|master)=", word)]
    if old.job_dir and not any(re.match(r"--?(output|model)_dir=", word) for word in arguments):
        arguments.append(f"--output_dir={old.job_dir}")
    return _with_code(settings, gcloud, [_PYTHON, "-m", f"bert.{_program(old)}", "--use_tpu", *arguments], {})


def _with_code(settings, gcloud, command, variables):
    """The container of this project's image, which fetches the code of now and runs a command in it."""
    image = settings.container or _image(settings, gcloud)
    code = sync.code_url(settings, sync.send_code(settings, gcloud))
    if settings.tpu_type.is_pod:
        # The program finds the hosts by TPU_CONFIG, and keeps off the cores of its own host.
        variables = {**variables, "TPU_LOAD_LIBRARY": "0"}
    container = {"imageUri": image, "args": [*_RUN, code, *map(_literal, command)]}
    env = [{"name": name, "value": _literal(value)} for name, value in sorted(variables.items())]
    return {**container, **({"env": env} if env else {})}


def _literal(text):
    """A text for the API, which would take $(NAME) for a variable."""
    return text.replace("$(", "$$(")


def _program(old):
    return old.module.rpartition(".")[2]


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


def _seconds(settings):
    """After how many seconds MAX_HOURS or MAX_COST is reached, or None."""
    hours = [settings.max_hours] if settings.max_hours else []
    hours += [settings.max_cost / prices.per_hour(settings)] if settings.max_cost else []
    return round(min(hours) * 3600) if hours else None


def _image(settings, gcloud):
    """Address of the image, which is made if there is none. Its tag follows from what it is made of."""
    digest = hashlib.sha256()
    for source in _IMAGE_SOURCES:
        digest.update((sync.ROOT / source).read_bytes())
    tag = f"{'pod-' if settings.tpu_type.is_pod else ''}{digest.hexdigest()[:16]}"
    image = f"{gcloud.images_repository}/bert:{tag}"
    if tag not in gcloud.image_tags():
        gcloud.images_repository_create()
        prompt.say(settings, f"Making the image {image}, once; this takes some minutes.")
        if gcloud.shell.attach(gcloud.image_build(image, _POD_BASE if settings.tpu_type.is_pod else _BASE)):
            raise CloudError("the image could not be made; the lines above say why.")
    return image


def _follow(settings, gcloud, name, since=""):
    """Shows the log until the job has ended, and returns the status that its program ended with."""
    prompt.say(settings, f"The log of {name} follows; Ctrl-C leaves the job alone.")
    shown = set()
    try:
        while True:
            found = gcloud.custom_job_describe(name)
            if found is None:
                raise CloudError(f"the job {name} does not exist any more.")
            ended = not is_active(found)
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
        prompt.say(settings, "The job is done." if settings.job_file else f"The job is done. Results: {settings.out}")
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
