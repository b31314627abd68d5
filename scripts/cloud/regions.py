"""Whether a bucket and a TPU are in the same place; traffic between regions is slow and is billed."""

from scripts.cloud.errors import UsageError

# Multi-regions and the regions whose names begin so.
_MULTI_REGIONS = {"US": "us-", "EU": "europe-", "ASIA": "asia-"}


def matches(region, bucket):
    """Whether a bucket, as the API describes it, is in a region such as us-central1."""
    location = bucket.get("location", "").lower()
    places = [place.lower() for place in (bucket.get("data_locations") or [])]  # of a bucket in two regions
    return region in (location, *places)


def check(settings, region, bucket):
    """Refuses a bucket that is in another region than the TPU, unless ALLOW_CROSS_REGION=1.

    Args:
      settings: a `Settings`.
      region: of the TPU, as in us-central1.
      bucket: as the API describes it.

    Raises:
      UsageError: says where both are and what to do.
    """
    if settings.allow_cross_region or not bucket.get("location") or matches(region, bucket):
        return
    location = bucket["location"]
    if region.startswith(_MULTI_REGIONS.get(location, "/")):
        what = f"spans the multi-region {location}, so that reading it from {region} may be billed"
    else:
        what = f"is in {location.lower()}, the TPU in {region}: every byte between them is slow and is billed"
    raise UsageError(
        f"{settings.bucket} {what}. Use a bucket in {region} (cloud-up makes one of a new name), a ZONE in the "
        "bucket's region, or ALLOW_CROSS_REGION=1."
    )
