"""Bucket and TPU are made once, after asking; what fails is told apart and leaves nothing behind."""

import dataclasses

import pytest

from scripts.cloud import buckets, cloud_up, prices, prompt, tpu
from scripts.cloud.errors import CloudError, UsageError
from scripts.cloud.settings import Settings

NODE = "projects/my-project/locations/us-central1-b/nodes/my-tpu"


def test_bucket_and_tpu_are_made_as_they_should_be_and_once(cloud, gcloud, capsys):
    google = gcloud("cloud-up", RUN="mine")
    google.bucket_create()
    tpu.make(google.settings, google)
    node = cloud.state()["nodes"][NODE]
    assert node["labels"] == {"managed-by": "bert-on-tpu", "run": "mine", "owner": "me"}
    assert node["schedulingConfig"]["spot"] and node["runtimeVersion"] == "tpu-vm-tf-2.15.1-se"
    bucket = google.bucket_describe()
    assert bucket["location"] == "US-CENTRAL1" and bucket["uniform_bucket_level_access"]
    assert bucket["public_access_prevention"] == "enforced" and bucket["labels"]["managed-by"] == "bert-on-tpu"
    assert bucket["soft_delete_policy"]["retentionDurationSeconds"] == "0"
    # Again, there is nothing to ask and nothing to make.
    made = [request for request, _ in cloud.log() if request.startswith("POST")]
    assert cloud_up.main(google.settings, google) == 0
    assert made == [request for request, _ in cloud.log() if request.startswith("POST")]
    assert "are ready" in capsys.readouterr().out


def test_nothing_is_spent_unasked():
    settings = Settings.from_environment({"TPU_NAME": "my-tpu"}, "cloud-up")
    with pytest.raises(UsageError, match=r"Make it[?] There is no terminal to answer at: give YES=1"):
        prompt.confirm(settings, "Make it")
    assert "about $2.40 an hour (spot" in prices.describe(settings)
    prompt.confirm(dataclasses.replace(settings, yes=True), "Make it")


def test_no_capacity_is_said_and_leaves_nothing(cloud, gcloud, patient):
    cloud.fail_operation("create .*my-tpu", 8, "There is no more capacity in the zone us-central1-b")
    google = gcloud("cloud-up")
    with pytest.raises(CloudError, match=r"no more capacity.*QUEUED=1") as error:
        tpu.make(google.settings, google)
    assert error.value.kind == "capacity" and not cloud.state()["nodes"]


def test_a_queued_request_that_fails_is_deleted(cloud, gcloud, patient):
    cloud.fail_operation("my-tpu", 8, "There is no more capacity in the zone us-central1-b")
    google = gcloud("cloud-up", QUEUED="1")
    with pytest.raises(CloudError, match="queued resource my-tpu failed: it is FAILED"):
        tpu.make(google.settings, google)
    assert not cloud.state()["queued"] and not cloud.state()["nodes"]


def test_a_tpu_of_another_zone_is_not_made_twice(cloud, gcloud):
    assert gcloud("cloud-up", ZONE="europe-west4-a").tpu_create().ok
    google = gcloud("cloud-up", YES="1")
    with pytest.raises(UsageError, match=r"there is a TPU my-tpu in europe-west4-a.*ZONE=europe-west4-a"):
        cloud_up.look_at_tpu(google.settings, google)


def test_a_bucket_elsewhere_is_refused():
    settings = Settings.from_environment({"BUCKET": "gs://my-bucket"}, "cloud-up")
    buckets.check_region(settings, "us-central1", {"location": "US-CENTRAL1"})
    buckets.check_region(settings, "us-central1", {"location": "NAM4", "data_locations": ["US-CENTRAL1", "US-EAST1"]})
    for region, location, words in (("europe-west4", "EU", "multi-region EU"), ("us-central1", "US-EAST1", "us-east1")):
        with pytest.raises(UsageError, match=rf"{words}.*ALLOW_CROSS_REGION=1"):
            buckets.check_region(settings, region, {"location": location})
    buckets.check_region(dataclasses.replace(settings, allow_cross_region=True), "us-east1", {"location": "EU"})


def test_a_bucket_of_somebody_else_is_refused(cloud, gcloud):
    cloud.make_bucket()
    cloud.fault("GET .*/b/my-bucket", "status", status=403, count=-1)
    google = gcloud("cloud-up")
    with pytest.raises(CloudError, match="somebody else's"):
        buckets.look(google.settings, google)
    cloud.mend()
