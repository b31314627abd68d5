"""What carries the label goes, in all zones; nothing else does."""

import subprocess

import pytest

from scripts.cloud import clean


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(clean, "_PAUSE_SECONDS", 0.1)


def test_all_with_the_label_goes_and_nothing_without_it(cloud, gcloud, quick, capsys):
    cloud.make_bucket()
    cloud.write("pretrain/out/model.ckpt-1.index", b"x")
    assert gcloud("cloud-up", ZONE="europe-west4-a").tpu_create().ok
    other = ["gcloud", "compute", "tpus", "tpu-vm", "create", "theirs", "--accelerator-type=v3-8"]
    other += ["--version=tpu-vm-tf-2.15.1-se", "--labels=managed-by=somebody", "--quiet"]
    subprocess.run(other, env=cloud.env, check=True, capture_output=True)
    parent = "projects/my-project/locations/us-central1/customJobs"
    jobs = {
        f"{parent}/{i}": {"name": f"{parent}/{i}", "state": "JOB_STATE_RUNNING", "labels": {"managed-by": owner}}
        for i, owner in enumerate(("bert-on-tpu", "somebody"))
    }
    cloud.set(jobs=jobs, job_states=["JOB_STATE_RUNNING"])
    google = gcloud("clean-cloud", YES="1", DELETE_DATA="1")
    clean.main(google.settings, google)
    states = [job["state"] for job in cloud.state()["jobs"].values()]
    assert states == ["JOB_STATE_CANCELLED", "JOB_STATE_RUNNING"]
    assert [name.rpartition("/")[2] for name in cloud.state()["nodes"]] == ["theirs"]
    # Data go on request, but the bucket does not carry the label.
    assert cloud.names() == []
    shown = capsys.readouterr().out
    assert "deleted: TPU my-tpu in europe-west4-a" in shown and "theirs" not in shown


def test_a_labelled_bucket_goes_only_with_its_last_run(cloud, gcloud):
    cloud.make_bucket(labels={"managed-by": "bert-on-tpu"})
    cloud.write("pretrain/a", b"x")
    cloud.write("other/b", b"x")
    google = gcloud("clean-cloud", DELETE_DATA="1")
    (folder,) = clean.data(google.settings, google)
    folder.delete()
    assert cloud.names() == ["other/b"]
    google = gcloud("clean-cloud", DELETE_DATA="1", RUN="other")
    (bucket,) = clean.data(google.settings, google)
    assert bucket.description.startswith("bucket gs://my-bucket")
    assert clean.data(gcloud("clean-cloud", RUN="other").settings, google) == []
