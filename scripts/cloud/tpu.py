"""The life of a TPU VM: what its states mean, making it and waiting for it, removing it."""

import time

from scripts.cloud import prompt
from scripts.cloud.errors import HINTS, CloudError, failure
from scripts.cloud.settings import MANAGED_BY

READY = "READY"
# It is on its way to be ready, or comes back by itself.
COMING = ("CREATING", "STARTING", "RESTARTING", "REIMAGING", "REPAIRING", "UNHIDING")
# It never comes back: it must be deleted before another of its name can be made.
GONE = ("PREEMPTED", "TERMINATED", "HIDDEN", "HIDING")
STOPPED = ("STOPPED", "STOPPING")
QUEUE_WAITS = ("CREATING", "ACCEPTED", "WAITING_FOR_RESOURCES", "PROVISIONING")
# A TPU VM takes a few minutes; one that takes this long does not come any more.
_PATIENCE_SECONDS = 30 * 60
_POLL_SECONDS = 15


def state(node):
    """The state of a TPU VM as the API names it; "ABSENT" if there is none, "UNKNOWN" if the API does not say."""
    return "ABSENT" if node is None else node.get("state", "UNKNOWN")


def is_ours(resource):
    """Whether a resource carries this project's label."""
    return (resource.get("labels") or {}).get("managed-by") == MANAGED_BY


def zone_of(resource):
    """The zone in the full name of a TPU VM or queued resource, or in a field of a Compute Engine VM."""
    if "zone" in resource:
        return resource["zone"].rpartition("/")[2]
    return resource["name"].split("/")[3]


def name_of(resource):
    """The last part of a resource's name."""
    return resource["name"].rpartition("/")[2]


def type_of(node):
    """Accelerator type of a TPU VM, as in `v3-8`; empty if the API does not say."""
    return node.get("acceleratorType", "").rpartition("/")[2]


def make(settings, gcloud):
    """Makes the TPU VM and waits until it is ready. What fails half-way is removed again.

    Args:
      settings: a `Settings`.
      gcloud: a `Gcloud`.

    Raises:
      CloudError: with the kind of the failure, such as `capacity`, `quota` or `permission`.
    """
    if settings.queued:
        _queue(settings, gcloud)
        return
    progress = prompt.Progress(settings, f"{settings.tpu_name} is being made")
    result = gcloud.tpu_create(tick=progress, timeout=_PATIENCE_SECONDS)
    if result.ok:
        wait(settings, gcloud)
        return
    error = failure(f"making the TPU {settings.tpu_name}", result.stderr)
    if error.kind == "exists":  # somebody else was faster by seconds
        wait(settings, gcloud)
        return
    # A name that is taken by a failed half would stand in the way, and could cost.
    _remove_half(settings, gcloud)
    raise error


def wait(settings, gcloud):
    """Waits until the TPU VM is ready.

    Raises:
      CloudError: it will not be; if it never became ready it is removed, provided it is this project's.
    """
    progress = prompt.Progress(settings, f"waiting for {settings.tpu_name}")
    end = time.monotonic() + _PATIENCE_SECONDS
    while True:
        node = gcloud.tpu_describe()
        if state(node) == READY:
            return
        if state(node) not in COMING:
            raise CloudError(f"the TPU {settings.tpu_name} is {state(node)}. {HINTS['terminal']}", "terminal")
        if time.monotonic() >= end:
            break
        progress()
        gcloud.shell.sleep(_POLL_SECONDS)
    if is_ours(node):
        remove(settings, gcloud)
    minutes = _PATIENCE_SECONDS // 60
    raise CloudError(
        f"the TPU {settings.tpu_name} was {state(node)} for {minutes} minutes and never became ready"
        f"{'; it was deleted again' if is_ours(node) else ''}. Try again, or another ZONE.",
        "capacity",
    )


def wait_in_queue(settings, gcloud):
    """Waits until the queued resource has got its TPU VM and that is ready.

    Raises:
      CloudError: the request failed or expired; it is deleted, since it would count against the quota.
    """
    name = settings.tpu_name
    progress = prompt.Progress(settings, f"{name} waits in line")
    while True:
        request = gcloud.queued_describe()
        condition = (request or {}).get("state", {})
        if condition.get("state") == "ACTIVE":
            wait(settings, gcloud)
            return
        if condition.get("state") not in QUEUE_WAITS:
            break
        progress()
        gcloud.shell.sleep(_POLL_SECONDS)
    if request is None:
        raise CloudError(f"the queued resource {name} was deleted by somebody.", "not_found")
    reason = condition.get("failedData", {}).get("error", {}).get("message") or f"it is {condition.get('state')}"
    gcloud.queued_delete()
    raise failure(f"the queued resource {name}", reason)


def remove(settings, gcloud):
    """Deletes the TPU VM, and the queued resource that it came from, which would keep the name and the quota."""
    queue = queue_of(gcloud.tpu_describe()) or (settings.tpu_name if settings.queued else "")
    if queue:
        gcloud.queued_delete(queue)
    else:
        gcloud.tpu_delete()


def queue_of(node):
    """Name of the queued resource that a TPU VM comes from; empty if there is none."""
    return ((node or {}).get("queuedResource") or "").rpartition("/")[2]


def _queue(settings, gcloud):
    result = gcloud.queued_create()
    if not result.ok:
        error = failure(f"asking for the TPU {settings.tpu_name}", result.stderr)
        if error.kind != "exists":
            raise error
    wait_in_queue(settings, gcloud)


def _remove_half(settings, gcloud):
    node = gcloud.tpu_describe()
    if node is not None and is_ours(node) and state(node) != READY:
        gcloud.tpu_delete()
