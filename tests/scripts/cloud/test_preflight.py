"""Every check that fails says what is the matter, and the command that mends it."""

import json
import subprocess
import sys
import time

import pytest

from scripts.cloud import checks, machine_checks
from scripts.cloud.checks import Unmet
from scripts.cloud.settings import Settings

ANSWER = {
    "time": 100.0, "python": "3.10.12", "free_bytes": 9e9, "devices": 4, "gpus": 0, "rehearsal": "", "bucket": "",
    "tensorflow": "2.15.1", "tensorflow_folder": "/usr/tensorflow", "tpu_runtime": True,
}  # fmt: skip


def settings(**variables):
    place = {"TPU_NAME": "my-tpu", "BUCKET": "gs://my-bucket", "ZONE": "us-central1-b"}
    return Settings.from_environment({**place, **variables}, "preflight")


def test_a_tensorflow_without_a_tpu_runtime_is_refused_with_its_place():
    machine_checks._tensorflow(settings(), ANSWER)
    for change, words in (
        ({"tpu_runtime": False}, "/usr/tensorflow was installed by pip"),
        ({"tensorflow": "2.17.0"}, "needs 2.15"),
        ({"tensorflow": None, "tensorflow_error": "ImportError: numpy"}, "ImportError: numpy"),
    ):
        with pytest.raises(Unmet, match=words) as error:
            machine_checks._tensorflow(settings(), {**ANSWER, **change})
        assert error.value.mend


def test_the_machine_is_checked():
    machine_checks._clock(ANSWER, 98.0, 103.0)
    with pytest.raises(Unmet, match="200 s ahead of"):
        machine_checks._clock({**ANSWER, "time": 300.0}, 95.0, 100.0)
    with pytest.raises(Unmet, match=r"1.0 GB are free"):
        machine_checks._disk({**ANSWER, "free_bytes": 1e9})
    with pytest.raises(Unmet, match="no /dev/accel0"):
        machine_checks._device(settings(), {**ANSWER, "devices": 0})
    with pytest.raises(Unmet, match=r"3\.12"):
        machine_checks._python({**ANSWER, "python": "3.12.1"})


def test_a_bucket_that_the_machine_may_not_use_comes_with_the_binding_that_mends_it():
    denied = {**ANSWER, "bucket": "writing gs://my-bucket/x: ERROR: HTTPError 403: no access"}
    with pytest.raises(Unmet) as error:
        machine_checks._access(settings(), denied, {"serviceAccount": {"email": "vm@p.iam.gserviceaccount.com"}})
    assert "gs://my-bucket --member=serviceAccount:vm@p.iam.gserviceaccount.com" in error.value.mend
    assert "--role=roles/storage.objectAdmin" in error.value.mend


def test_every_core_gets_as_many_examples():
    assert checks._batch(settings(BATCH="64"), None) == "64 examples are 8 on each of 8 cores"
    with pytest.raises(Unmet, match=r"BATCH, 36, is not a multiple of the 8 cores") as error:
        checks._batch(settings(BATCH="36"), None)
    assert error.value.mend == "BATCH=32"
    with pytest.raises(Unmet, match=r"sample\.json, 32, is not a multiple of the 64"):
        checks._batch(settings(TPU_TYPE="v3-64"), None)


def test_the_probe_tells_what_a_machine_is_like(tmp_path):
    result = subprocess.run(
        [sys.executable, machine_checks._PROBE, "gs://my-bucket/x"],
        env={"PATH": str(tmp_path), "HOME": str(tmp_path), "TF_CPP_MIN_LOG_LEVEL": "3"},
        capture_output=True,
        text=True,
        check=True,
    )
    answer = json.loads(result.stdout.splitlines()[-1])
    assert answer["tensorflow"].startswith("2.15.") and not answer["tpu_runtime"]  # as of the package index
    assert answer["bucket"] == "neither gcloud nor gsutil is installed" and abs(answer["time"] - time.time()) < 300
