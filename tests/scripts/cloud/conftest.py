"""Google Cloud's stand-in, as the tests of tests/cloud have it, and verbs that run against it."""

import importlib.util
import pathlib
import sys

import pytest

_FOLDER = pathlib.Path(__file__).parents[2] / "cloud"
sys.path[:0] = [str(_FOLDER), str(_FOLDER.parents[1])]
_SPEC = importlib.util.spec_from_file_location("cloud_stand_in", _FOLDER / "conftest.py")
_STAND_IN = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(_STAND_IN)
cloud, google_server = _STAND_IN.cloud, _STAND_IN.google_server

PLACE = {"TPU_NAME": "my-tpu", "BUCKET": "gs://my-bucket", "USER": "me"}


@pytest.fixture
def gcloud(cloud, monkeypatch):
    """Makes a `Gcloud` that talks to the stand-in: `gcloud(verb, RUN="mine", ...)`."""
    from scripts.cloud.gcloud import Gcloud
    from scripts.cloud.settings import Settings
    from scripts.cloud.shell import Shell

    for name in set(cloud.env) | {"TPU_NAME", "BUCKET", "ZONE", "PROJECT", "RUN"}:
        if name in cloud.env:
            monkeypatch.setenv(name, cloud.env[name])
        else:
            monkeypatch.delenv(name, raising=False)
    return lambda verb, **variables: Gcloud(Settings.from_environment({**PLACE, **variables}, verb), Shell())


@pytest.fixture
def patient(monkeypatch):
    """Waiting takes no time."""
    from scripts.cloud import tpu

    monkeypatch.setattr(tpu, "_POLL_SECONDS", 0.1)
