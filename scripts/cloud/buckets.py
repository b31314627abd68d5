"""The bucket: whose it is, and whether it is where the TPU is."""

from scripts.cloud.errors import CloudError, UsageError

# Traffic between regions is slow and is billed. Multi-regions and the regions whose names begin so.
_MULTI_REGIONS = {"US": "us-", "EU": "europe-", "ASIA": "asia-"}


def look(settings, gcloud):
    """The bucket as the API describes it, None if it does not exist.

    Raises:
      CloudError: it is somebody else's.
      UsageError: it is in a region that the TPU is not in.
    """
    try:
        bucket = gcloud.bucket_describe(assumed=None)
    except CloudError as e:
        if e.kind != "permission":
            raise
        raise CloudError(
            f"{settings.bucket} may not be looked at. Names of buckets are the world's: either it is somebody else's, "
            f"then choose another name; or you lack roles/storage.admin. ({e})",
            e.kind,
        ) from None
    if bucket is not None:
        check_region(settings, gcloud.region, bucket)
    return bucket


def _matches(region, bucket):
    """Whether a bucket, as the API describes it, is in a region such as us-central1."""
    location = bucket.get("location", "").lower()
    places = [place.lower() for place in (bucket.get("data_locations") or [])]  # of a bucket in two regions
    return region in (location, *places)


def check_region(settings, region, bucket):
    """Refuses a bucket that is in another region than the TPU, unless ALLOW_CROSS_REGION=1.

    Args:
      settings: a `Settings`.
      region: of the TPU, as in us-central1.
      bucket: as the API describes it.

    Raises:
      UsageError: says where both are and what to do.
    """
    if settings.allow_cross_region or not bucket.get("location") or _matches(region, bucket):
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
