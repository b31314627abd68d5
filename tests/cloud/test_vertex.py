"""Jobs of Vertex AI, by the real gcloud against the stand-in."""

import io
import os
import pathlib
import re
import shlex
import subprocess
import sys
import tarfile

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from scripts.cloud import vertex
from scripts.cloud.gcloud import Gcloud
from scripts.cloud.settings import Settings
from scripts.cloud.shell import Shell

ROOT = pathlib.Path(__file__).resolve().parents[2]


def make(env, **variables):
    command = ["make", "--no-print-directory", "vertex", *(f"{k}={v}" for k, v in variables.items())]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    return done.returncode and int(done.stderr.rpartition("Error ")[2]), done.stdout, done.stderr


@pytest.fixture
def here():
    """An environment without an account, for dry runs."""
    return {name: value for name, value in os.environ.items() if not name.startswith("CLOUDSDK_")}


def dry_run(env, **variables):
    """Exit status, the specification of the job, and the last lines before it or else all errors."""
    variables = {"BUCKET": "gs://my-bucket", "ZONE": "us-central1-b", "PROJECT": "my-project", **variables}
    status, out, err = make(env, DRY_RUN="1", **variables)
    if status:
        return status, None, err
    commands, _, rest = out.partition("cat >job.yaml <<'END'\n")
    return status, yaml.safe_load(rest.partition("END\n")[0]), commands


def test_a_job_trains_with_the_code_of_the_bucket(cloud, gcs_server, monkeypatch, tmp_path):
    cloud.make_bucket()
    cloud.set(job_states=["JOB_STATE_SUCCEEDED"])
    folder = tmp_path / "$(touch pwned) 'glue'" / "MRPC"
    folder.mkdir(parents=True)
    (folder / "dev.tsv").write_text("Quality\n")
    account = "trainer@my-project.iam.gserviceaccount.com"
    where = {"YES": "1", "BUCKET": "gs://my-bucket", "SERVICE_ACCOUNT": account, "MAX_HOURS": "2"}
    status, out, err = make(cloud.env, **where, TASK="MRPC", DATA_DIR=folder, STEPS="3", ARGS="--note='$(touch pwned)'")
    assert status == 0, err
    assert "step 1 of 2" in out and out.endswith("The job is done. Results: gs://my-bucket/mrpc/out\n")

    state = cloud.state()
    ((name, repository),) = state["repositories"].items()
    assert name.endswith("us-central1/repositories/bert-on-tpu")
    assert repository["labels"] == {"managed-by": "bert-on-tpu"}
    (build,) = state["builds"].values()
    with tarfile.open(fileobj=io.BytesIO(cloud.read(build["source"]["storageSource"]["object"]))) as source:
        files = {member.name for member in source if member.isfile()}
    assert files == {
        "requirements.txt",
        *(f"scripts/vertex/{file.name}" for file in (ROOT / "scripts/vertex").iterdir()),
    }

    (job,) = state["jobs"].values()
    assert job["displayName"] == "mrpc" and job["labels"]["run"] == "mrpc"
    assert job["labels"]["managed-by"] == "bert-on-tpu"
    spec = job["jobSpec"]
    assert spec["serviceAccount"] == account and spec["scheduling"] == {"timeout": "7200s"}
    (pool,) = spec["workerPoolSpecs"]
    assert pool["replicaCount"] == "1"
    assert pool["machineSpec"] == {"machineType": "cloud-tpu", "acceleratorType": "TPU_V3", "acceleratorCount": 8}
    container = pool["containerSpec"]
    assert container["imageUri"] == build["substitutions"]["_IMAGE"]

    # What the container does.
    variables = {entry["name"]: entry["value"].replace("$$(", "$(") for entry in container["env"]}
    assert cloud.read("mrpc/data/data_dir/MRPC/dev.tsv") == b"Quality\n"
    python, program, *rest = container["args"]
    assert (python, program) == ("python3", "/opt/bert/run.py")
    command = [sys.executable, ROOT / "scripts" / "vertex" / "run.py", *rest]
    env = {
        **cloud.env,
        **variables,
        "GOOGLE_APPLICATION_CREDENTIALS": gcs_server[2],
        "DRY_RUN": "1",
        "TMPDIR": tmp_path,
    }
    shown = shlex.split(subprocess.run(command, env=env, capture_output=True, text=True, check=True).stdout)
    assert shown[1:3] == ["-m", "bert.run_classifier"]
    data, output = "gs://my-bucket/mrpc/data/data_dir/MRPC", "gs://my-bucket/mrpc/out"
    expected = {"--tpu_name=local", f"--data_dir={data}", f"--output_dir={output}", "--num_train_steps=3"}
    assert expected | {"--note=$(touch pwned)"} <= set(shown)
    assert not list(tmp_path.rglob("pwned"))

    # The next job finds the image.
    for name, value in cloud.env.items():
        monkeypatch.setenv(name, value)
    settings = Settings.from_environment({"BUCKET": "gs://my-bucket", "ZONE": "us-central1-b"}, "vertex")
    assert Gcloud(settings, Shell()).image_tags() == [container["imageUri"].rpartition(":")[2]]


def test_a_job_ends_with_the_status_of_its_program(cloud):
    given = {"BUCKET": "gs://my-bucket", "CONTAINER": "us-docker.pkg.dev/mine/bert/bert:1", "YES": "1"}
    names = {run: f"projects/my-project/locations/us-central1/customJobs/{run}" for run in ("7", "8")}
    running = {
        name: {"name": name, "state": "JOB_STATE_RUNNING", "labels": {"managed-by": "bert-on-tpu", "run": run}}
        for run, name in names.items()
    }
    cloud.set(
        jobs=running,
        job_states=["JOB_STATE_RUNNING", "JOB_STATE_FAILED"],
        job_error={"code": 9, "message": "The replica workerpool0-0 exited with a non-zero status of 75."},
    )
    status, out, err = make(cloud.env, **given, RUN="8")
    assert status == 75 and "the job ended as FAILED: The replica" in err
    assert "A job of the run 8 is RUNNING already" in out and out.count("step 1 of 2") == 1
    assert set(cloud.state()["jobs"]) == set(running)


def test_a_pod_slice_finds_its_hosts_by_the_environment(here):
    status, spec, commands = dry_run(
        here, TPU_TYPE="v2-32", CORPUS="data/kjv/*.txt", MAX_COST="10", PRICE_PER_HOUR="20"
    )
    assert status == 0
    (pool,) = spec["workerPoolSpecs"]
    assert pool["machineSpec"] == {"machineType": "cloud-tpu", "acceleratorType": "TPU_V2", "acceleratorCount": 32}
    variables = {entry["name"]: entry["value"] for entry in pool["containerSpec"]["env"]}
    assert variables["TPU_LOAD_LIBRARY"] == "0" and "TPU_NAME" not in variables
    assert variables["CORPUS"].startswith("gs://my-bucket/pretrain/data/corpus/")
    assert spec["scheduling"]["timeout"] == "1800s"
    assert "_BASE=us-docker.pkg.dev/vertex-ai/training/tf-tpu-pod-base-cp310" in commands


@pytest.mark.parametrize(
    "variables, message",
    [
        ({"TPU_TYPE": "v4-8"}, "TPU_TYPE=v4-8: of the TPUs of Vertex AI only v2 and v3"),
        ({"CORPUS": "no-such-*.txt"}, r"CORPUS=no-such-\*.txt does not exist"),
        ({"TPU_TYPE": "v3-32"}, "CORPUS is needed: the hosts of a pod slice"),
        ({"CONTAINER": "Not An Image"}, "CONTAINER='Not An Image' cannot be used"),
    ],
)
def test_what_cannot_work_is_refused_first(here, variables, message):
    status, _, err = dry_run(here, **variables)
    assert status == 2 and re.search(message, err), err
    assert "Traceback" not in err


VALUES = st.recursive(
    st.text() | st.integers(),
    lambda inner: (
        st.lists(inner, min_size=1, max_size=3)
        | st.dictionaries(st.from_regex("[a-z]{1,8}x", fullmatch=True), inner, min_size=1, max_size=3)
    ),
    max_leaves=8,
)


@given(VALUES.filter(lambda value: isinstance(value, (dict, list))))
def test_a_job_is_written_as_yaml(value):
    assert yaml.safe_load(vertex.as_yaml(value)) == value
