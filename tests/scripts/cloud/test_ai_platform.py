"""Configurations of AI Platform as jobs of Vertex AI."""

import os
import pathlib
import subprocess
import sys

import pytest
import yaml

from scripts.cloud import ai_platform
from scripts.cloud.errors import UsageError

ROOT = pathlib.Path(__file__).resolve().parents[3]
POD = """\
jobId: bert_pod_1
labels: {team: nlp}
trainingInput:
  scaleTier: CUSTOM
  masterType: n1-highcpu-16
  masterConfig:
    imageUri: gcr.io/mine/bert:1
  workerType: cloud_tpu
  workerCount: 1
  workerConfig:
    acceleratorConfig:
      type: TPU_V3_POD
      count: 128
    tpuTfVersion: "2.11"
  args: [--steps=10, "--name=a b"]
  region: us-central1
  jobDir: gs://mine/job
  serviceAccount: trainer@mine.iam.gserviceaccount.com
  scheduling:
    maxRunningTime: 7200s
"""
BASIC = """\
trainingInput:
  scaleTier: BASIC_TPU
  pythonModule: bert.run_pretraining
  packageUris: [gs://mine/bert.tar.gz]
  args:
  - --use_tpu=True
  - --tpu_name=my-node
  - --input_file=gs://mine/*.tfrecord
  jobDir: gs://mine/out
  region: us-central1
  runtimeVersion: '1.15'
"""


def read(tmp_path, text):
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    return ai_platform.read(str(path))


def vertex(tmp_path, text, **variables):
    """Exit status of a dry run, the job, and all that was printed."""
    path = tmp_path / "config.yaml"
    path.write_text(text, encoding="utf-8")
    env = {name: value for name, value in os.environ.items() if not name.startswith("CLOUDSDK_")}
    env.update({"JOB": str(path), "DRY_RUN": "1", "ZONE": "us-central1-a", "PROJECT": "my-project", **variables})
    command = [sys.executable, "-m", "scripts.cloud", "vertex"]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True)
    _, _, rest = done.stdout.partition("cat >job.yaml <<'END'\n")
    return done.returncode, yaml.safe_load(rest.partition("END\n")[0]), done.stdout + done.stderr


def test_a_pod_slice_with_an_image_of_its_own(tmp_path):
    status, job, said = vertex(tmp_path, POD)
    assert status == 0, said
    machine = {"machineType": "cloud-tpu", "acceleratorType": "TPU_V3", "acceleratorCount": 128}
    container = {"imageUri": "gcr.io/mine/bert:1", "args": ["--steps=10", "--name=a b", "--job-dir=gs://mine/job"]}
    assert job == {
        "workerPoolSpecs": [{"machineSpec": machine, "replicaCount": 1, "containerSpec": container}],
        "serviceAccount": "trainer@mine.iam.gserviceaccount.com",
        "scheduling": {"timeout": "7200s"},
    }
    assert "config.yaml:5: masterType falls away" in said and "config.yaml:14: tpuTfVersion falls away" in said
    assert "--display-name=bert_pod_1" in said and "--labels=team=nlp,managed-by=bert-on-tpu,run=bert_pod_1," in said


def test_one_of_our_programs(tmp_path):
    status, job, said = vertex(tmp_path, BASIC, BUCKET="gs://my-bucket", RUN="mine", MAX_HOURS="1")
    assert status == 0, said
    (pool,) = job["workerPoolSpecs"]
    assert pool["machineSpec"] == {"machineType": "cloud-tpu", "acceleratorType": "TPU_V2", "acceleratorCount": 8}
    python, fetch, code, *command = pool["containerSpec"]["args"]
    assert (python, fetch) == ("python3", "/opt/bert/run.py") and code.startswith("gs://my-bucket/mine/code/")
    program = ["/opt/bert/venv/bin/python", "-m", "bert.run_pretraining"]
    # The TPU's own machine runs it: the node's name is of no use.
    flags = ["--use_tpu", "--use_tpu=True", "--input_file=gs://mine/*.tfrecord", "--output_dir=gs://mine/out"]
    assert command == program + flags and "env" not in pool["containerSpec"]
    assert job["scheduling"] == {"timeout": "3600s"}

    status, _, said = vertex(tmp_path, BASIC)
    assert status == 2 and "make vertex needs BUCKET=" in said
    status, _, said = vertex(tmp_path, BASIC.replace("bert.run_pretraining", "trainer.task"), BUCKET="gs://my-bucket")
    assert status == 2 and "config.yaml:3: pythonModule trainer.task is not a program of this project" in said
    status, _, said = vertex(tmp_path, BASIC, BUCKET="gs://my-bucket", ZONE="europe-west4-a")
    assert status == 2 and "has region us-central1, and ZONE is europe-west4-a" in said


def test_the_master_may_be_the_tpu(tmp_path):
    config = "{imageUri: a/b, containerCommand: [x]}"
    job = read(tmp_path, f"trainingInput: {{scaleTier: CUSTOM, masterType: cloud_tpu, masterConfig: {config}}}")
    assert (job.generation, job.cores, job.image, job.command) == ("v2", 8, "a/b", ["x"])


def test_a_job_of_vertex_ai_stays_as_it_is(tmp_path):
    status, _, said = vertex(tmp_path, "workerPoolSpecs: []", RUN="mine")
    assert status == 0 and f"--display-name=mine --config={tmp_path}/config.yaml" in said
    status, _, said = vertex(tmp_path, "", JOB="no-such-file")
    assert status == 2 and "vertex: JOB=no-such-file cannot be read: [Errno 2]" in said


def changed(old, new):
    assert old in POD
    return POD.replace(old, new)


@pytest.mark.parametrize(
    "text, message",
    [
        (changed("count: 128", "count: 64"), "config.yaml:13: count 64: TPU_V3_POD has 32, 128, 256, 512, 1024, 2048."),
        (
            changed("TPU_V3_POD", "TPU_V2_POD").replace("128", "1024"),
            ":13: count 1024: TPU_V2_POD has 32, 128, 256, 512.",
        ),
        (changed("TPU_V3_POD", "TPU_V3"), ":13: count 128: TPU_V3 has 8."),
        (changed("count: 128", "count: many"), ":13: count many: "),
        (changed("TPU_V3_POD", "TPU_V4_POD"), ":12: type TPU_V4_POD: it must be one of TPU_V2 TPU_V3 "),
        (
            changed("  region", "  parameterServerCount: 3\n  region"),
            "parameterServerCount 3: .* neither parameter servers",
        ),
        (changed("  region", "  evaluatorType: standard\n  region"), "evaluatorType standard: .* nor evaluators"),
        (changed("workerCount: 1", "workerCount: 2"), ":9: workerCount 2: a job has one TPU"),
        (changed("  workerCount: 1\n", ""), "workerCount: a job has one TPU: workerCount must be 1"),
        (changed("cloud_tpu", "standard_p100"), ":8: workerType standard_p100: it must be cloud_tpu"),
        (changed("n1-highcpu-16", "cloud_tpu"), ":8: workerType cloud_tpu: masterType is cloud_tpu already"),
        (changed("  masterType: n1-highcpu-16\n", ""), ":4: scaleTier CUSTOM needs masterType"),
        (changed("CUSTOM", "BASIC_TPU"), ":5: masterType n1-highcpu-16: only scaleTier CUSTOM"),
        (changed("CUSTOM", "BASIC_GPU"), ":4: scaleTier BASIC_GPU: those with a TPU are BASIC_TPU and CUSTOM"),
        (changed("  region", "  pythonModule: a.b\n  region"), "pythonModule a.b: a job with an image of its own"),
        (changed('"2.11"', "latest"), ":14: tpuTfVersion latest: it is a version"),
        (
            changed("  region", "  hyperparameters: {goal: MAXIMIZE}\n  region"),
            ":16: hyperparameters: tuning is another kind",
        ),
        (changed("  region", "  machine: x\n  region"), ":16: machine is not a field"),
        (changed("      count: 128", "      count: 128\n      count: 8"), ":14: count is there twice"),
        (changed("[--steps=10,", "{steps: 10} #"), ":15: args must be a list"),
        ("trainingInput: [1]", ":1: trainingInput must have fields of its own"),
        ("trainingInput: {scaleTier: BASIC_TPU}", ":1: there is nothing to run"),
        ("a: [1", r"config.yaml:1: this is not YAML|config.yaml:2: this is not YAML"),
        ("- 1", "this is no job"),
        ("", "this is no job"),
    ],
)
def test_what_the_service_refused_is_refused_with_its_line(tmp_path, text, message):
    with pytest.raises(UsageError, match=message):
        read(tmp_path, text)
