"""What can be checked before anything is made: a line each, with the command that mends it."""

import json
import pathlib

from scripts.cloud import buckets, prompt, sync
from scripts.cloud.errors import CloudError, UsageError

EXIT_FAILED = 2
_CONFIGS = pathlib.Path(__file__).parents[2] / "bert" / "configs"
_SERVICES = ("tpu.googleapis.com", "compute.googleapis.com")
# Where a failure makes all other questions pointless.
_HOPELESS = ("auth", "unreachable", "not_installed", "no_project", "billing")


class Unmet(Exception):
    """A condition that does not hold: what is the matter, and the command that mends it."""

    def __init__(self, what, mend=""):
        super().__init__(what)
        self.mend = mend


def before_spending(settings, gcloud):
    """Checks what can be checked before anything is made. Prints a line each and returns how many failed."""
    checks = [("services", _services)]
    if not settings.control_vm:
        checks += [("TPU type", _tpu_type), ("image", _image)]
    checks += [("bucket", _bucket), ("data", _data), ("batch", _batch)]
    return sum(not holds(settings, name, lambda check=check: check(settings, gcloud)) for name, check in checks)


def holds(settings, name, check):
    """Runs a check, prints its line, and returns whether it holds.

    Args:
      settings: a `Settings`.
      name: of the check.
      check: function without arguments that returns what it found, or raises `Unmet`.

    Raises:
      CloudError: the failure makes all other checks pointless, as when nobody is logged in.
    """
    try:
        detail = check()
    except Unmet as e:
        mend = f" Mend it: {e.mend}" if e.mend else ""
        prompt.say(settings, f"FAILED {name}: {e}.{mend}")
        return False
    except (CloudError, UsageError) as e:
        if getattr(e, "kind", "") in _HOPELESS:
            raise
        prompt.say(settings, f"FAILED {name}: {e}")
        return False
    prompt.say(settings, f"ok     {name}: {detail}")
    return True


def _services(settings, gcloud):
    enabled = gcloud.services(assumed=_SERVICES)
    missing = [name for name in _SERVICES if name not in enabled]
    if missing:
        project = f" --project={settings.project}" if settings.project else ""
        raise Unmet(f"{' and '.join(missing)} not enabled", f"gcloud services enable {' '.join(missing)}{project}")
    return "Cloud TPU and Compute Engine are enabled"


def _tpu_type(settings, gcloud):
    offered = gcloud.accelerator_types()
    name = settings.tpu_type.name
    if name not in offered:
        usable = [other for other in offered if other.startswith(("v2-", "v3-", "v4-"))]
        raise Unmet(
            f"{gcloud.zone} does not offer {name}, but {' '.join(usable) or 'nothing that could be used'}",
            "TPU_TYPE=..., or a ZONE of: gcloud compute tpus locations list",
        )
    return f"{gcloud.zone} offers {name}: {settings.tpu_type.cores} cores"


def _image(settings, gcloud):
    offered = gcloud.images()
    if settings.image not in offered:
        usable = [name for name in offered if name.startswith("tpu-vm-tf-2.15") and name.endswith("-se")]
        raise Unmet(
            f"{gcloud.zone} does not offer {settings.image}",
            f"IMAGE={usable[0]}" if usable else "another ZONE: without an image of TensorFlow 2.15 nothing can be done",
        )
    return f"{settings.image} is offered"


def _bucket(settings, gcloud):
    bucket = buckets.look(settings, gcloud)
    if bucket is None:
        return f"{settings.bucket} does not exist yet, make cloud-up makes it in {gcloud.region}"
    if bucket.get("public_access_prevention") == "inherited":
        raise Unmet(
            f"{settings.bucket} could be made public",
            f"gcloud storage buckets update {settings.bucket} --public-access-prevention",
        )
    return f"{settings.bucket} is in {bucket.get('location', '').lower()}, with {gcloud.zone}"


def _data(settings, gcloud):
    """Whether what the variables name is there."""
    sync.plan(settings)  # complains of what is missing on this machine
    found = []
    for name in ("CORPUS", "EVAL_CORPUS", "VOCAB", "CONFIG", "INIT", "DATA_DIR"):
        value = settings.program.get(name)
        if not value:
            continue
        for path in value.split(",") if name in ("CORPUS", "EVAL_CORPUS") else [value]:
            pattern = f"{path}*" if name == "INIT" else path  # a checkpoint is named without its suffixes
            if path.startswith("gs://") and not gcloud.storage_list(pattern) and not settings.dry_run:
                raise Unmet(f"{name}={path} does not exist")
        found.append(name)
    return f"{', '.join(found)} found" if found else "the sample corpus that comes with the code"


def _batch(settings, gcloud):
    """Whether every core gets as many examples as any other."""
    if settings.control_vm:
        return "the program checks it"
    cores = settings.tpu_type.cores
    for source, batch in _batches(settings):
        if batch % cores:
            below = max(cores, batch // cores * cores)
            raise Unmet(f"{source}, {batch}, is not a multiple of the {cores} cores", f"BATCH={below}")
    return ", ".join(
        f"{batch} examples are {batch // cores} on each of {cores} cores" for _, batch in _batches(settings)
    )


def _batches(settings):
    """The batch sizes that are going to be used, each with where it comes from."""
    given = settings.program.get("BATCH")
    if given:
        if not given.isdigit() or int(given) == 0:
            raise Unmet(f"BATCH={given} is not a whole number above zero")
        return [("BATCH", int(given))]
    if settings.program.get("TASK"):
        return [("the batch size of fine-tuning", 32)]
    name = settings.program.get("RECIPE") or "sample"
    path = pathlib.Path(name) if name.endswith(".json") else _CONFIGS / "recipes" / f"{name}.json"
    if not path.exists():
        path = _CONFIGS / "recipes" / "bert.json"  # a recipe that is called as a shape of the model
    try:
        recipe = json.loads(path.read_text(encoding="utf-8"))
        return [(f"train_batch_size of {path.name}", int(recipe["flags"]["train_batch_size"]))]
    except (OSError, ValueError, KeyError, TypeError):
        raise Unmet(f"{path} is not a recipe with a train_batch_size") from None
