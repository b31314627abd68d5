"""What watch decides from what it sees, that only one does, and that its limits stop everything."""

import json

import pytest

from scripts.cloud import lock, watch
from scripts.cloud.errors import UsageError
from scripts.cloud.machine import Machine

HANG = 1800.0
RUNNING = {"state": "running", "log_size": 1}
STOPPED = {"state": "stopped", "exit_status": 75}


@pytest.mark.parametrize(
    ("action", "state", "job", "more"),
    [
        ("wait", "READY", RUNNING, {}),
        ("wait", "CREATING", None, {"answers": False}),
        ("wait", "REPAIRING", RUNNING, {"answers": False}),
        ("recreate", "REPAIRING", RUNNING, {"answers": False, "idle": HANG + 1}),
        ("recreate", "PREEMPTED", RUNNING, {"answers": False}),
        ("recreate", "TERMINATED", None, {"answers": False}),
        ("recreate", "ABSENT", RUNNING, {"answers": False}),
        # Whoever preempts a machine stops its job first, which then has a checkpoint, and is not done.
        ("recreate", "PREEMPTED", STOPPED, {"answers": False}),
        ("restart", "READY", STOPPED, {}),
        ("stopped", "READY", {**STOPPED, "stop_requested": True}, {}),
        ("stopped", "ABSENT", {**STOPPED, "stop_requested": True}, {"answers": False}),
        ("done", "READY", {"state": "finished", "exit_status": 0}, {}),
        ("done", "ABSENT", {"state": "finished", "exit_status": 0}, {"answers": False}),
        # What the bucket has of a machine that does not answer may be of a job before.
        ("wait", "READY", {"state": "finished", "exit_status": 0}, {"answers": False}),
        ("failed", "READY", {"state": "failed", "exit_status": 2}, {}),
        ("restart", "READY", {"state": "failed", "exit_status": 3}, {}),
        ("restart", "READY", {"state": "died", "exit_status": None}, {}),
        ("restart", "READY", {"state": "absent"}, {}),
        ("restart", "READY", RUNNING, {"idle": HANG + 1}),
        ("recreate", "READY", RUNNING, {"idle": HANG + 1, "complaint": "UNHEALTHY_TPU"}),
        ("wait", "READY", RUNNING, {"complaint": "UNHEALTHY_MAINTENANCE"}),
        ("wait", "READY", RUNNING, {"answers": False}),
        ("recreate", "READY", RUNNING, {"answers": False, "idle": HANG + 1}),
    ],
)
def test_decisions(action, state, job, more):
    complaint = more.get("complaint", "")
    machine = Machine(state, is_healthy=not complaint, complaint=complaint)
    sight = watch.Sight(machine, job, more.get("answers", True), more.get("idle", 10.0))
    assert watch.decide(sight, HANG)[0] == action


def test_a_training_lives_by_its_steps_and_everything_else_by_its_log():
    training = {
        "status": "running", "start": "2026-01-01T00:00:00+00:00", "step": 20, "settings": {"num_train_steps": 100},
        "starts": [{"time": "2026-01-01T00:01:00+00:00", "step": 0}],
    }  # fmt: skip
    said = {"log_size": 2}
    assert watch.life(RUNNING, training) == watch.life(said, training)
    assert watch.life(RUNNING, training) != watch.life(RUNNING, {**training, "step": 21})
    # Before the first step, as while records are made, and after the last.
    for record in ({}, {**training, "step": 0}, {**training, "step": 100}, {**training, "start": "2026-01-02"}):
        assert watch.life(RUNNING, record) != watch.life(said, record)


def test_one_watch_at_a_time(cloud, gcloud, monkeypatch):
    cloud.make_bucket()
    google = gcloud("watch")
    with lock.hold(google.settings, google) as check:
        check()
        with pytest.raises(UsageError, match="already looked after"), lock.hold(google.settings, google):
            pass
        monkeypatch.setattr(lock, "EXPIRY", -10.0)  # this one is dead, and another comes
        with lock.hold(google.settings, google):
            pass
    assert not [name for name in cloud.names() if name.endswith("watch.lock")]


def test_a_limit_counts_machines_that_are_gone_and_deletes_the_one_that_is_there(cloud, gcloud, patient, capsys):
    cloud.make_bucket()
    google = gcloud("watch", MAX_COST="5")
    assert google.tpu_create().ok
    before = {"first": {"start": 0, "end": 7200, "price": 2.4}, "second": {"start": 0, "end": 600, "price": 6.0}}
    cloud.write("pretrain/job/machines.json", json.dumps(before).encode())
    assert watch.Watch(google.settings, google, lambda: None).run() == watch.EXIT_STOPPED
    assert not cloud.state()["nodes"] and len(json.loads(cloud.read("pretrain/job/machines.json"))) == 3
    assert "and about $5.8" in capsys.readouterr().out
