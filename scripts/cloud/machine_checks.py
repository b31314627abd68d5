"""What can be checked on the machine that is to run the program: a line each, with the command that mends it."""

import json
import pathlib
import time

from scripts.cloud import tpu, tpu_types
from scripts.cloud.checks import Unmet, holds
from scripts.cloud.errors import classify, reason
from scripts.cloud.gcloud import quoted
from scripts.cloud.vm import VM

_PROBE = pathlib.Path(__file__).parents[1] / "vm" / "probe.py"
# Importing TensorFlow on a machine that has just booted takes a minute.
_PROBE_SECONDS = 300
# Cloud Storage's locks are taken over after two minutes without a sign of life.
_CLOCK_SECONDS = 60
# Data stay in the bucket; this is for the code, its virtual environment and the log.
_SPARE_BYTES = 2e9


def run(settings, gcloud, node):
    """Checks the machine that is to run the program. Prints a line each and returns how many failed.

    Args:
      settings: a `Settings`.
      gcloud: a `Gcloud`.
      node: the TPU VM as the API describes it; None for a CONTROL_VM.
    """
    if node is not None and not holds(settings, "TPU", lambda: _node(settings, gcloud, node)):
        return 1
    answer, before, after = {}, time.time(), 0.0

    def reach():
        nonlocal after
        answer.update(_probe(settings, gcloud))
        after = time.time()
        return f"{answer.get('host', settings.vm)} answers"

    if not holds(settings, "ssh", reach):
        return 1
    if settings.dry_run:
        return 0
    checks = [
        ("clock", lambda: _clock(answer, before, after)),
        ("Python", lambda: _python(answer)),
        ("TensorFlow", lambda: _tensorflow(settings, answer)),
        ("device", lambda: _device(settings, answer)),
        ("disk", lambda: _disk(answer)),
        ("bucket access", lambda: _access(settings, answer, node)),
    ]
    return sum(not holds(settings, name, check) for name, check in checks)


def _node(settings, gcloud, node):
    state = tpu.state(node)
    if state != tpu.READY:
        raise Unmet(f"{settings.tpu_name} is {state}", settings.command("cloud-up"))
    health = node.get("health", "")
    if health not in ("", "HEALTHY", "HEALTH_UNSPECIFIED"):
        raise Unmet(
            f"{settings.tpu_name} is {health}: {node.get('healthDescription', 'no reason is given')}",
            settings.command("watch"),
        )
    tpu_types.parse(tpu.type_of(node) or settings.tpu_type.name)
    return f"{settings.tpu_name} in {gcloud.zone} is ready"


def _probe(settings, gcloud):
    """What the machine says of itself, as a dict."""
    source = _PROBE.read_text(encoding="utf-8")
    command = quoted(["-c", source, settings.prefix])
    script = f'python=python3; [ -x ~/bert-venv/bin/python ] && python=~/bert-venv/bin/python; "$python" {command}'
    result = VM(settings, gcloud).run(script, timeout=_PROBE_SECONDS)
    if settings.dry_run:
        return {}
    lines = result.stdout.strip().splitlines()
    if not result.ok or not lines:
        raise Unmet(f"the probe failed on the machine: {reason(result.stderr)}")
    return json.loads(lines[-1])


def _clock(answer, before, after):
    ahead, behind = answer["time"] - after, before - answer["time"]
    if max(ahead, behind) > _CLOCK_SECONDS:
        direction = f"{ahead:.0f} s ahead of" if ahead > 0 else f"{behind:.0f} s behind"
        raise Unmet(
            f"the machine's clock is {direction} this one's, locks and tokens need them to agree",
            "see which is wrong: date -u here and in make ssh; there: sudo systemctl restart chrony",
        )
    return "the machine's and this one's agree"


def _python(answer):
    version = tuple(int(part) for part in answer["python"].split(".")[:2])
    if not (3, 9) <= version <= (3, 11):
        raise Unmet(f"the machine's is {answer['python']}, TensorFlow 2.15 needs 3.9 to 3.11", "another IMAGE")
    return answer["python"]


def _tensorflow(settings, answer):
    if answer["tensorflow"] is None:
        # A machine without a TPU gets TensorFlow with the rest of what the program needs.
        if settings.control_vm and "No module named" in answer["tensorflow_error"]:
            return "not there yet, it is installed with the program's other requirements"
        raise Unmet(f"it cannot be imported there: {answer['tensorflow_error']}", "make a TPU VM of the default IMAGE")
    origin = f"{answer['tensorflow']} in {answer['tensorflow_folder']}"
    if not answer["tensorflow"].startswith("2.15."):
        raise Unmet(f"{origin}; the program needs 2.15", "make a TPU VM of the default IMAGE")
    if settings.has_tpu_vm and not answer["rehearsal"] and not answer["tpu_runtime"]:
        raise Unmet(
            f"{origin} was installed by pip and has no TPU runtime; it hides the one of the image",
            "in make ssh: pip uninstall -y tensorflow tensorflow-cpu; rm -rf ~/bert-venv",
        )
    return origin


def _device(settings, answer):
    if answer["rehearsal"]:
        return f"{answer['rehearsal']}, this is a rehearsal"
    if settings.control_vm:
        return f"the TPU at {settings.tpu_name}" if settings.tpu_name else f"{answer['gpus']} GPU(s)"
    if not answer["devices"] and not settings.tpu_type.is_pod:
        raise Unmet("there is no /dev/accel0: the machine has no TPU", "make clean-cloud, then make cloud-up")
    return f"{answer['devices']} TPU chips"


def _disk(answer):
    free = answer["free_bytes"]
    if free < _SPARE_BYTES:
        raise Unmet(
            f"{free / 1e9:.1f} GB are free there, code and packages take {_SPARE_BYTES / 1e9:.1f}",
            "in make ssh: du -sh ~/* ~/bert-runs/*, and delete what is not needed",
        )
    return f"{free / 1e9:.1f} GB are free"


def _access(settings, answer, node):
    trouble = answer["bucket"]
    if not trouble:
        return f"the machine wrote, read and deleted an object of {settings.prefix}"
    kind = classify(trouble)
    if kind == "not_found":
        raise Unmet(f"the machine does not find {settings.bucket}", settings.command("cloud-up"))
    account = (node or {}).get("serviceAccount", {}).get("email") or settings.service_account or "ACCOUNT"
    raise Unmet(
        f"{reason(trouble)}",
        f"gcloud storage buckets add-iam-policy-binding {settings.bucket} --member=serviceAccount:{account} "
        "--role=roles/storage.objectAdmin"
        if kind == "permission"
        else "",
    )
