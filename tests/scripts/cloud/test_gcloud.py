"""Failures are told apart by what gcloud says; commands end with all their children."""

import pathlib
import time

import pytest

from scripts.cloud.errors import CloudError, classify, failure
from scripts.cloud.shell import TIMED_OUT, Shell


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("auth", "ERROR: (gcloud.storage.ls) You do not currently have an active account selected."),
        ("auth", "ERROR: (gcloud.x) There was a problem refreshing your current auth tokens: invalid_grant"),
        ("api", "PERMISSION_DENIED: Cloud TPU API has not been used in project 1 before or it is disabled."),
        ("billing", "FAILED_PRECONDITION: Billing account for project '1' is not found."),
        ("capacity", '{"code": 8, "message": "There is no more capacity in the zone \\"us-central1-f\\""}'),
        ("quota", "RESOURCE_EXHAUSTED: Quota limit 'TPUV3sPreemptiblePerProjectPerZoneForTPUAPI' has been exceeded."),
        ("quota", "ERROR: 429 Quota exceeded for quota metric 'v2-8 pods'"),
        ("rate", "HTTPError 429: The rate of requests is too high. rateLimitExceeded"),
        ("zone", "PERMISSION_DENIED: Permission denied on 'locations/us-moon1-a' (or it may not exist)."),
        ("not_found", "NOT_FOUND: Resource 'projects/p/locations/us-central1-b/nodes/my-tpu' was not found"),
        ("not_found", "ERROR: (gcloud.storage.cat) The following URLs matched no objects or files:\ngs://b/x"),
        ("permission", "HTTPError 403: me@x.com does not have storage.buckets.get access to the bucket."),
        ("permission", "PERMISSION_DENIED: Permission 'tpu.nodes.create' denied on 'projects/p/locations/z'"),
        ("exists", "ALREADY_EXISTS: Resource 'projects/p/locations/z/nodes/my-tpu' already exists"),
        ("precondition", "HTTPError 412: At least one of the pre-conditions you specified did not hold."),
        ("terminal", 'This TPU has terminal state "PREEMPTED", so it cannot be used anymore.'),
        ("unreachable", "Could not reach the server: [Errno -3] Temporary failure in name resolution"),
        ("unreachable", "no answer within 120 s"),
        ("unavailable", "HTTPError 503: backendError"),
        ("no_zone", "ERROR: (gcloud.compute.tpus.tpu-vm.ssh) argument (TPU : --zone=ZONE): Must be specified."),
        (
            "other",
            "ERROR: (gcloud.compute.ssh) [/usr/bin/ssh] exited with return code [255].\nRecommendation: rerun the ssh "
            "command.\n\ngcloud compute ssh my-vm --project=p --zone=us-central1-b --troubleshoot",
        ),
        ("other", "something new"),
    ],
)
def test_failures_are_told_apart(kind, text):
    assert classify(text) == kind


def test_a_failure_says_what_why_and_what_to_do():
    error = failure("making x", "Copying...\nERROR: (gcloud.a.b) HTTPError 403: no access.\nmore")
    assert str(error).startswith("making x failed: HTTPError 403: no access. A role is missing")
    assert error.kind == "permission"


def test_what_takes_too_long_ends_with_its_children(tmp_path):
    ticks = []
    script = f"sleep 100 & echo $! >{tmp_path}/pid; wait"
    result = Shell().run(["bash", "-c", script], timeout=0.6, tick=lambda: ticks.append(1), every=0.2)
    assert result.returncode == TIMED_OUT and "no answer within" in result.stderr and ticks
    time.sleep(0.1)
    stat = pathlib.Path(f"/proc/{(tmp_path / 'pid').read_text().strip()}/stat")
    assert not stat.exists() or stat.read_text().split()[2] == "Z"


def test_words_are_words_whatever_is_in_them(capfd):
    word = "a b$(touch hit)'\"\n*"
    assert Shell().run(["printf", "%s", word]).stdout == word
    assert Shell(dry_run=True).run(["touch", word], assumed="x").stdout == "x"
    assert not pathlib.Path(word).exists() and "$(touch hit)" in capfd.readouterr().out


def test_a_missing_program_is_named():
    with pytest.raises(CloudError, match="no-such-program is not installed"):
        Shell().run(["no-such-program"])


def test_objects_are_written_under_conditions_and_passing_faults_are_waited_for(cloud, gcloud):
    cloud.make_bucket()
    google = gcloud("watch")
    url = "gs://my-bucket/mine/a b"
    assert google.storage_write(url, "one\n", 0) and google.storage_write(url, "two\n", 0) is None
    cloud.fault("GET .*a%20b.*alt=media", "status", status=429, count=1)
    google.shell.sleep = lambda seconds: None
    assert google.storage_cat(url) == "one\n"
