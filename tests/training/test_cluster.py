"""What TF_CONFIG may say."""

import json

import pytest

from bert.errors import InputError
from bert.training import cluster

TWO = {"worker": ["10.0.0.1:2222", "10.0.0.2:2222"]}


def set_config(monkeypatch, jobs, job="worker", index=0):
    monkeypatch.setenv("TF_CONFIG", json.dumps({"cluster": jobs, "task": {"type": job, "index": index}}))


def test_the_chief_comes_first(monkeypatch):
    monkeypatch.delenv("TF_CONFIG", raising=False)
    assert cluster.read() is None
    set_config(monkeypatch, {"chief": ["10.0.0.9:1"]}, "chief")
    assert cluster.read() is None  # a job on a single machine
    set_config(monkeypatch, {**TWO, "chief": ["10.0.0.9:1"]}, index="1")
    found = cluster.read()
    assert found.addresses == ["10.0.0.9:1", *TWO["worker"]]
    assert found.rank == 2 and not found.is_chief
    set_config(monkeypatch, TWO)
    assert cluster.read().is_chief


@pytest.mark.parametrize(
    "jobs, job, index, message",
    [
        (TWO, "worker", 2, "this machine is worker 2, but the cluster has worker 0, worker 1"),
        (TWO, "worker", -1, "this machine is worker -1"),
        (TWO, "worker", "x", "It must be JSON like"),
        (TWO, "chief", 0, "this machine is chief 0, but"),
        ({**TWO, "ps": ["10.0.0.3:1"]}, "worker", 0, "names the job 'ps'"),
        (TWO, "evaluator", 0, "names the job 'evaluator'"),
        ({"chief": ["a:1", "b:1"]}, "chief", 0, "names 2 chiefs"),
        ({"worker": ["a:1", "a:1"]}, "worker", 0, "names a:1 twice"),
        ({"worker": ["a", "b:1"]}, "worker", 0, "'a' is not an address"),
        (["a:1"], "worker", 0, "It must be JSON like"),
    ],
)
def test_what_is_wrong_is_said(monkeypatch, jobs, job, index, message):
    set_config(monkeypatch, jobs, job, index)
    with pytest.raises(InputError, match=message):
        cluster.read()


def test_what_is_not_json_is_refused(monkeypatch):
    monkeypatch.setenv("TF_CONFIG", "{")
    with pytest.raises(InputError, match="It must be JSON like"):
        cluster.read()
