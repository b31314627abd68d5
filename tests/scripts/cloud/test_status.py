"""Status tells what there is, also when the machine is gone."""

import json

from scripts.cloud import machine, status

RECORD = {
    "status": "running", "step": 250, "settings": {"num_train_steps": 1000, "train_batch_size": 32},
    "metrics": {"loss": 6.5, "examples_per_second": 16.0}, "updated": "2026-01-01T00:00:00+00:00",
    "last_checkpoint": {"step": 200, "time": "2026-01-01T00:00:00+00:00"}, "starts": [{}, {}],
}  # fmt: skip


def test_times_of_all_services_are_read():
    at = 1767225600.0
    for text in ("2026-01-01T00:00:00Z", "2026-01-01T00:00:00.123456789Z", "2025-12-31T16:00:00.1-08:00"):
        assert machine.seconds(text) == at
    assert machine.seconds("") is None and machine.seconds("soon") is None


def test_the_training_is_told_with_the_time_left():
    now = machine.seconds(RECORD["updated"]) + 65
    lines = status._training(RECORD, now)
    assert lines[0] == "step 250 of 1000 (25.0 %), loss 6.5000, 16 examples/s, 25:00 left"
    assert lines[1:] == ["last report 1:05 ago", "last checkpoint: step 200, 1:05 ago", "restarts: 1"]
    assert status._training({}, now) == []


def test_all_of_it_survives_the_machine(cloud, gcloud, capsys):
    cloud.make_bucket()
    cloud.write("pretrain/out/run.json", json.dumps(RECORD).encode())
    job = {"state": "running", "verb": "pretrain", "started": "2026-01-01T00:00:00Z", "time": "2026-01-01T00:00:00Z"}
    cloud.write("pretrain/job/status.json", json.dumps(job).encode())
    cloud.write("pretrain/job/machines.json", json.dumps({"a": {"start": 0, "end": 7200, "price": 2.4}}).encode())
    google = gcloud("status")
    status.main(google.settings, google)
    shown = capsys.readouterr().out
    assert "there is none in this zone" in shown and "2.0 hours so far, about $4.80" in shown
    assert "step 250 of 1000" in shown and "as the bucket has it" in shown
