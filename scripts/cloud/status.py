"""make status: the machine, the job, the training and the costs on one screen; also after the machine is gone."""

import time

from scripts.cloud import jobs, ledger, lock, machine, prompt, tpu
from scripts.cloud.errors import CloudError
from scripts.cloud.prompt import duration

# Where a failure makes all other questions pointless.
_HOPELESS = ("auth", "unreachable", "not_installed", "no_project")


def main(settings, gcloud):
    """Prints what can be found out; what cannot is said to be unknown."""
    settings.need("VM")
    now = time.time()
    seen = _part(settings, "machine", lambda: machine.look(settings, gcloud))
    if seen is not None:
        _print(settings, "machine", _machine(settings, seen, now))
    if settings.bucket:
        costs = _part(settings, "cost", lambda: ledger.Ledger(settings, gcloud))
        if costs is not None:
            _print(settings, "cost", _cost(costs, seen, now))
        watch = _part(settings, "watch", lambda: lock.holder(settings, gcloud))
        if watch:
            _print(settings, "watch", [f"looked after by {watch['owner']} on {watch['host']} since {watch['start']}"])
    is_ready = seen is not None and seen.state == tpu.READY
    known = _part(settings, "job", lambda: jobs.look(settings, gcloud, is_ready))
    if known is not None:
        _print(settings, "job", _job(settings, *known, now))
    if settings.out.startswith("gs://"):
        record = _part(settings, "training", lambda: jobs.training(settings, gcloud))
        if record:
            _print(settings, "training", _training(record, now))
        results = _part(settings, "evaluation", lambda: gcloud.storage_cat(f"{settings.out}/eval_results.txt"))
        if results:
            _print(settings, "evaluation", [", ".join(line.strip() for line in results.strip().splitlines())])


def _part(settings, name, ask):
    """The answer to a question; None, after saying why, if there is none."""
    try:
        return ask()
    except CloudError as e:
        if e.kind in _HOPELESS:
            raise
        _print(settings, name, [f"unknown: {e}"])
    return None


def _print(settings, name, lines):
    for i, line in enumerate(lines):
        prompt.say(settings, f"{name if i == 0 else '':<10} {line}")


def _machine(settings, seen, now):
    if seen.state == "ABSENT":
        return [f"{settings.vm}: there is none in this zone; make one: {settings.command('cloud-up')}"]
    up = f", up {duration(now - seen.started)}" if seen.started and seen.state == tpu.READY else ""
    price = f", ${seen.price:.2f} an hour" if seen.price else ""
    lines = [f"{settings.vm}: {seen.state}, {seen.kind}{up}{price}"]
    if seen.state in tpu.GONE:
        lines.append(f"it does not come back; a new one that goes on: {settings.command('watch')}")
    if seen.complaint:
        lines.append(seen.complaint)
    if seen.maintenance:
        lines.append(f"maintenance is announced for {seen.maintenance}")
    return lines


def _cost(costs, seen, now):
    if seen is not None and seen.state == tpu.READY:
        costs.note(seen, now)
    return [f"{costs.hours:.1f} hours so far, about ${costs.dollars:.2f} for the machine (list price, without storage)"]


def _job(settings, job, is_fresh, now):
    state = (job or {}).get("state", "absent")
    if state == "absent":
        return [f"none yet; start one: {settings.command('pretrain')}"]
    what = f"{job.get('verb', 'job')} of the run {settings.run}: "
    started = machine.seconds(job.get("started") or "")
    if state in ("running", "stopping"):
        what += state if started is None else f"{state} for {duration(now - started)}"
    elif state == "failed":
        what += f"failed with status {job.get('exit_status')}; why: {settings.command('logs')}"
    elif state == "died":
        what += f"died without a word, as when the machine is out of memory; see {settings.command('logs')}"
    else:
        what += state
    lines = [what]
    if not is_fresh:
        lines.append(f"as the bucket has it, of {_ago(job.get('time') or '', now)} ago")
    return lines


def _training(record, now):
    lines = []
    step, total = record.get("step"), record.get("settings", {}).get("num_train_steps")
    metrics = record.get("metrics", {})
    parts = []
    if step is not None:
        parts.append(f"step {step}" + (f" of {total} ({100 * step / total:.1f} %)" if total else ""))
    if "loss" in metrics:
        parts.append(f"loss {metrics['loss']:.4f}")
    rate = metrics.get("examples_per_second")
    batch = record.get("settings", {}).get("train_batch_size")
    if rate and record.get("status") == "running":
        parts.append(f"{rate:.4g} examples/s")
        if step is not None and total and batch:
            parts.append(f"{duration((total - step) * batch / rate)} left")
    if parts:
        lines.append(", ".join(parts))
    if record.get("updated") and record.get("status") == "running":
        lines.append(f"last report {_ago(record['updated'], now)} ago")
    checkpoint = record.get("last_checkpoint")
    if checkpoint:
        lines.append(f"last checkpoint: step {checkpoint['step']}, {_ago(checkpoint['time'], now)} ago")
    restarts = len(record.get("starts", [])) - 1
    if restarts > 0:
        lines.append(f"restarts: {restarts}")
    return lines


def _ago(timestamp, now):
    seconds = machine.seconds(timestamp)
    return "some time" if seconds is None else duration(now - seconds)
