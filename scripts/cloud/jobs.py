"""What is known of a run's job and its training: from the machine if it answers, else from the bucket."""

import json

from scripts.cloud.errors import CloudError
from scripts.cloud.vm import VM


def look(settings, gcloud, is_ready):
    """The state of the job, as `scripts/vm/job.py` tells it.

    Args:
      settings: a `Settings`.
      gcloud: a `Gcloud`.
      is_ready: whether the machine is there to be asked.

    Returns:
      The state as a dict, or None if there has been no job; and whether it is the machine's own answer, not the copy in
      the bucket, which may be half a minute old or much older.
    """
    if is_ready:
        try:
            return VM(settings, gcloud).job_status(), True
        except CloudError as e:
            if e.kind not in ("unreachable", "terminal", "not_found", "other"):
                raise
    return _read(settings.bucket and f"{settings.job}/status.json", gcloud), False


def training(settings, gcloud):
    """The content of the `run.json` of the training; empty if there is none in a bucket."""
    return _read(settings.out.startswith("gs://") and f"{settings.out}/run.json", gcloud) or {}


def _read(url, gcloud):
    content = gcloud.storage_cat(url) if url else None
    try:
        return json.loads(content) if content else None
    except ValueError:
        raise CloudError(f"{url} is not JSON.") from None
