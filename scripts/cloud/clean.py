"""make clean-cloud: nothing that this project made goes on costing.

Machines are found by their label in all zones, whoever made them for whichever run. What does not carry the label is
never touched. Data stay unless DELETE_DATA=1.
"""

import dataclasses
from typing import Callable

from scripts.cloud import prompt, tpu, vertex
from scripts.cloud.errors import CloudError, UsageError

# A machine takes a minute or two to go.
_LOOKS = 20
_PAUSE_SECONDS = 15


@dataclasses.dataclass(frozen=True)
class Found:
    """Something to delete: its description, and the function that deletes it."""

    description: str
    delete: Callable


def main(settings, gcloud):
    """Lists, asks, deletes, and lists again until nothing is left."""
    found = _machines(gcloud) + data(settings, gcloud)
    if not found and not settings.dry_run:
        prompt.say(settings, "Nothing in the cloud carries this project's label: nothing to delete.")
        _tell_of_data(settings)
        return
    for thing in found:
        prompt.say(settings, f"  {thing.description}")
    prompt.confirm(settings, f"Delete {'this' if len(found) == 1 else f'these {len(found)}'}")
    _delete(settings, found)
    for _ in range(_LOOKS):
        left = _machines(gcloud)
        if not left or settings.dry_run:
            break
        prompt.say(settings, f"Waiting for {len(left)} to go: {'; '.join(thing.description for thing in left)}")
        gcloud.shell.sleep(_PAUSE_SECONDS)
    else:
        raise CloudError(
            f"{len(left)} are still there: {'; '.join(thing.description for thing in left)}. Run it again."
        )
    prompt.say(settings, "Nothing with this project's label is left that costs by the hour.")
    _tell_of_data(settings)


def _machines(gcloud):
    """All machines and requests for them that carry the label, requests first, which hold on to their machines."""
    found, held = [], set()
    for request in _listed(gcloud.queued_list):
        name, zone = tpu.name_of(request), tpu.zone_of(request)
        for spec in request.get("tpu", {}).get("nodeSpec", []):
            held.add((spec.get("nodeId"), zone))
        state = request.get("state", {}).get("state", "UNKNOWN")
        found.append(
            Found(
                f"queued resource {name} in {zone}, {state}, with its TPU",
                lambda name=name, zone=zone: gcloud.queued_delete(name, zone),
            )
        )
    for node in _listed(gcloud.tpu_list):
        name, zone = tpu.name_of(node), tpu.zone_of(node)
        if (name, zone) not in held and tpu.is_ours(node):
            found.append(
                Found(
                    f"TPU {name} in {zone}, {tpu.type_of(node)}, {tpu.state(node)}{_whose(node)}",
                    lambda name=name, zone=zone: gcloud.tpu_delete(name, zone),
                )
            )
    for vm in _listed(gcloud.instance_list):
        name, zone = vm["name"], tpu.zone_of(vm)
        if tpu.is_ours(vm):
            found.append(
                Found(
                    f"VM {name} in {zone}, {vm.get('status', 'UNKNOWN')}{_whose(vm)}",
                    lambda name=name, zone=zone: gcloud.instance_delete(name, zone),
                )
            )
    for job in _jobs(gcloud):
        name = job["name"]
        found.append(
            Found(
                f"job {job.get('displayName', name)} of Vertex AI, {job.get('state', 'UNKNOWN')}{_whose(job)}",
                lambda name=name: gcloud.custom_job_end(name),
            )
        )
    return found


def _jobs(gcloud):
    """The jobs of Vertex AI that have not ended, in the region of the zone; none where no zone is given."""
    try:
        return [job for job in _listed(gcloud.custom_jobs) if vertex.is_active(job)]
    except UsageError:
        return []


def _listed(query):
    """What a query lists; nothing where the project does not even have the service."""
    try:
        return query()
    except CloudError as e:
        if e.kind == "api":
            return []
        raise


def data(settings, gcloud):
    """On request the run's folder in the bucket, and the bucket if it is this project's and holds nothing else."""
    if not settings.delete_data or not settings.bucket:
        return []
    bucket = gcloud.bucket_describe()
    if bucket is None:
        return []
    folders = gcloud.storage_list(f"{settings.bucket}/")
    mine = f"{settings.prefix}/"
    if tpu.is_ours(bucket) and not [folder for folder in folders if folder != mine]:
        return [
            Found(
                f"bucket {settings.bucket} with all its data: checkpoints, results, logs",
                gcloud.bucket_delete,
            )
        ]
    if mine not in folders and not settings.dry_run:
        return []
    return [
        Found(
            f"{mine} with all its data: checkpoints, results, logs",
            lambda: gcloud.storage_delete_folder(settings.prefix),
        )
    ]


def _delete(settings, found):
    """Deletes what was found, going on after a failure."""
    failures = []
    for thing in found:
        try:
            thing.delete()
            prompt.say(settings, f"deleted: {thing.description}")
        except CloudError as e:
            failures.append(e)
            prompt.say(settings, f"FAILED: {e}")
    if failures:
        raise CloudError(f"{len(failures)} could not be deleted and may go on costing; see above.", failures[0].kind)


def _tell_of_data(settings):
    if settings.bucket and not settings.delete_data:
        prompt.say(
            settings,
            f"Data in {settings.bucket} stay, and cost a little: {settings.command('clean-cloud', DELETE_DATA=1)}",
        )


def _whose(resource):
    labels = resource.get("labels") or {}
    return f", run {labels.get('run', '?')} of {labels.get('owner', '?')}"
