"""make watch: looks after a run until it is finished, whatever becomes of the machine that it runs on.

Every WATCH_SECONDS it looks at the machine, the job and the newest step, and decides what to do (`decide`). A machine
that is gone is deleted, made again and set to work; the program goes on from its last checkpoint. It gives up when
`MAX_RESTARTS` restarts in a row have brought no newer checkpoint, and stops everything when MAX_HOURS or MAX_COST are
reached. Everything it knows is in the bucket, so it can itself be interrupted, and started again elsewhere.
"""

import dataclasses
import re
import time
from typing import Optional

from scripts.cloud import jobs, launch, ledger, lock, machine, stop, tpu
from scripts.cloud.errors import CloudError, UsageError
from scripts.cloud.machine import Machine

MAX_RESTARTS = 3
EXIT_GAVE_UP = 3
EXIT_STOPPED = 75  # as of the program: run again, it goes on
_EXIT_USAGE = 2
# What a person must mend: trying again does not help.
_LASTING = ("permission", "api", "billing", "type", "zone", "no_project", "no_zone", "not_installed")
_LONGEST_PAUSE = 15  # times WATCH_SECONDS, between two tries to make a machine
_LEDGER_SECONDS = 300


@dataclasses.dataclass(frozen=True)
class Sight:
    """What there is to be seen at one look.

    Attributes:
      machine: a `Machine`.
      job: the job's state as the machine tells it, or, if it does not answer, as the bucket mirrors it; or None.
      answers: whether the machine answered.
      idle: seconds since the newest step changed, or since the machine was last worked on.
    """

    machine: Machine
    job: Optional[dict]
    answers: bool
    idle: float


def decide(sight, hang_seconds):
    """What to do about what is to be seen.

    Args:
      sight: a `Sight`.
      hang_seconds: for how long there may be no new step.

    Returns:
      What to do, and why: `wait`, `restart` the job, `recreate` the machine and restart the job, or, if there is
      nothing to look after any more, `done`, `stopped` or `failed`.
    """
    job = sight.job or {}
    job_state = job.get("state", "absent")
    hangs = sight.idle > hang_seconds
    state = sight.machine.state
    if sight.answers or state != tpu.READY:
        if job_state == "finished":
            return "done", "the job is done"
        if job_state == "stopped" and job.get("stop_requested"):
            return "stopped", "it was stopped by make stop"
    if state in tpu.COMING:
        return ("recreate", f"it is {state} and does not get ready") if hangs else ("wait", f"it is {state}")
    if state != tpu.READY:
        return "recreate", f"it is {state}"
    if not sight.answers:
        return ("recreate", "it does not answer and makes no steps") if hangs else ("wait", "it does not answer")
    if job_state == "failed" and job.get("exit_status") == _EXIT_USAGE:
        return "failed", "the program refuses its settings, which a restart does not change"
    if job_state not in ("running", "stopping"):
        status = f" with status {job['exit_status']}" if job_state == "failed" else ""
        return "restart", "there is no job on it" if job_state == "absent" else f"the job {job_state}{status}"
    if hangs and not sight.machine.is_healthy:
        return "recreate", f"no new step, and it is {sight.machine.complaint}"
    if hangs:
        return "restart", f"no new step for {sight.idle / 60:.0f} minutes"
    return "wait", ""


def life(job, record):
    """What changes as long as a run is alive: the step while it trains, else whatever the job logs.

    Args:
      job: state of the job, as `scripts/vm/job.py` tells it, or None.
      record: the content of the training's `run.json`.
    """
    step, starts = record.get("step"), record.get("starts") or [{}]
    total = record.get("settings", {}).get("num_train_steps")
    makes_steps = (
        record.get("status") == "running"
        and step is not None
        and starts[-1].get("time", "") >= record.get("start", "")
        and starts[-1].get("step") != step != total
    )
    return (step, len(starts)) if makes_steps else (step, len(starts), (job or {}).get("log_size"))


def main(settings, gcloud):
    """Looks after the run; returns an exit status."""
    settings.need("VM", "BUCKET")
    if settings.max_cost and settings.control_vm and settings.price_per_hour is None:
        raise UsageError(
            f"MAX_COST={settings.max_cost:g} with CONTROL_VM needs PRICE_PER_HOUR=dollars: no list has it."
        )
    with lock.hold(settings, gcloud) as check_lock:
        try:
            return Watch(settings, gcloud, check_lock).run()
        except (KeyboardInterrupt, CloudError):
            print(
                f"\nNobody looks after the run now, and no limit stops it or {settings.vm}. "
                f"Look after it again: {settings.command('watch')}",
                flush=True,
            )
            raise


class Watch:
    """One watch over one run.

    Args:
      settings: a `Settings`.
      gcloud: a `Gcloud`.
      check_lock: raises if another watch has taken over.
    """

    def __init__(self, settings, gcloud, check_lock):
        self._settings = settings
        self._gcloud = gcloud
        self._check_lock = check_lock
        self._ledger = ledger.Ledger(settings, gcloud)
        self._ledger_saved = 0.0
        self._step = None
        self._life = None
        self._moved = time.monotonic()
        self._checkpoint = self._newest_checkpoint()
        self._restarts = 0
        self._hung = False
        self._said = None

    def run(self):
        """Looks and acts until there is nothing to look after; returns an exit status."""
        while True:
            try:
                sight = self._look()
                self._account(sight)
                if self._is_over_limit():
                    return self._stop_everything()
                action, why = decide(sight, self._settings.hang_minutes * 60)
                if self._settings.dry_run:
                    action, why = "recreate", "as if it were PREEMPTED"
                if action == "restart" and self._hung and _runs(sight):
                    action = "recreate"  # a restart has not helped
                self._say(f"{action}: {why}" if why else self._progress(sight))
                if action in ("done", "stopped", "failed"):
                    return self._end(action, sight)
                if action != "wait":
                    if not self._may_restart():
                        return self._give_up(why)
                    self._check_lock()
                    self._again(action, sight)
            except CloudError as e:
                if e.kind in _LASTING:
                    raise
                self._say(f"wait: {e}")
            if self._settings.dry_run:
                return 0
            time.sleep(self._settings.watch_seconds)

    def _look(self):
        """What there is to be seen now."""
        seen = machine.look(self._settings, self._gcloud)
        job, answers = jobs.look(self._settings, self._gcloud, seen.state == tpu.READY)
        record = jobs.training(self._settings, self._gcloud)
        step, alive = record.get("step"), life(job, record)
        if step is not None and self._step is not None and step > self._step:
            self._hung = False
        if alive != self._life:
            self._moved = time.monotonic()
        self._step, self._life = step, alive
        return Sight(seen, job, answers, time.monotonic() - self._moved)

    def _account(self, sight):
        """Puts down what the machine costs, now and then also in the bucket."""
        if sight.machine.state == tpu.READY:
            self._ledger.note(sight.machine, time.time())
        if time.monotonic() - self._ledger_saved > _LEDGER_SECONDS or sight.machine.state != tpu.READY:
            self._ledger.save()
            self._ledger_saved = time.monotonic()

    def _is_over_limit(self):
        max_hours, max_cost = self._settings.max_hours, self._settings.max_cost
        return bool((max_hours and self._ledger.hours >= max_hours) or (max_cost and self._ledger.dollars >= max_cost))

    def _may_restart(self):
        """Whether another restart is worth its price: not after several without a newer checkpoint."""
        checkpoint = self._newest_checkpoint()
        if checkpoint > self._checkpoint:
            self._checkpoint, self._restarts = checkpoint, 0
        self._restarts += 1
        return self._restarts <= MAX_RESTARTS

    def _again(self, action, sight):
        """Makes the machine again if need be, and sets it to work."""
        settings = self._settings
        if action == "recreate":
            self._bring_back(sight.machine)
            self._hung = False
        elif _runs(sight):
            self._hung = True
            stop.stop(settings, self._gcloud)
        self._pause(self._restarts - 1)
        self._say(f"restart {self._restarts} of at most {MAX_RESTARTS} without progress, from step {self._checkpoint}")
        launch.start(settings, self._gcloud)
        self._moved = time.monotonic()

    def _bring_back(self, seen):
        """Deletes what is left of the machine and makes it again, trying as long as it takes to get one."""
        settings, gcloud = self._settings, self._gcloud
        if settings.control_vm:
            if seen.state == "ABSENT":
                raise CloudError(f"the VM {settings.control_vm} does not exist any more.", "no_zone")
            gcloud.instance_start()
            return
        if seen.state != "ABSENT":
            tpu.remove(settings, gcloud)
        tries = 0
        while True:
            self._check_lock()
            try:
                tpu.make(settings, gcloud)
                return
            except CloudError as e:
                if e.kind in _LASTING:
                    raise
                self._say(f"no machine yet: {e}")
            tries += 1
            self._pause(tries)

    def _pause(self, tries):
        """Waits longer each time."""
        if tries > 0:
            self._gcloud.shell.sleep(self._settings.watch_seconds * min(2 ** (tries - 1), _LONGEST_PAUSE))

    def _stop_everything(self):
        """Ends the job with a checkpoint, and the machine."""
        settings = self._settings
        self._say(f"the limit is reached after {self._costs()}: stopping the job, then the machine")
        try:
            stop.stop(settings, self._gcloud)
        except CloudError as e:  # a machine that cannot be reached must not go on costing
            self._say(f"the job could not be stopped: {e}")
        self._put_away()
        self._say(f"stopped; its checkpoints are in {settings.out}")
        return EXIT_STOPPED

    def _end(self, action, sight):
        self._ledger.save()
        status = {"done": 0, "stopped": EXIT_STOPPED, "failed": _EXIT_USAGE}[action]
        if action == "failed":
            print(f"See why: {self._settings.command('logs')}", flush=True)
        self._say(f"{self._costs()}, results in {self._settings.out}")
        self._leave(sight.machine)
        return status

    def _give_up(self, why):
        self._ledger.save()
        self._say(
            f"gives up: {MAX_RESTARTS} restarts have brought no checkpoint after step {self._checkpoint}, and again: "
            f"{why}. See why: {self._settings.command('logs')}"
        )
        self._leave(machine.look(self._settings, self._gcloud))
        return EXIT_GAVE_UP

    def _leave(self, seen):
        """Does not leave a machine behind that a limit was set for; tells of any other."""
        if seen.state == "ABSENT":
            return
        if self._settings.max_hours or self._settings.max_cost:
            self._put_away()
        elif seen.state == tpu.READY:
            print(
                f"{self._settings.vm} is still there and costs ${seen.price:.2f} an hour: "
                f"{self._settings.command('clean-cloud')}",
                flush=True,
            )

    def _put_away(self):
        self._check_lock()
        if self._settings.control_vm:
            self._gcloud.instance_stop()
        else:
            tpu.remove(self._settings, self._gcloud)
        self._ledger.save()
        self._say(f"{self._settings.vm} is {'stopped' if self._settings.control_vm else 'deleted'}")

    def _newest_checkpoint(self):
        """Step of the newest checkpoint; 0 if there is none."""
        if not self._settings.out.startswith("gs://"):
            return self._step or 0
        names = self._gcloud.storage_list(f"{self._settings.out}/model.ckpt-*.index")
        return max((int(re.search(r"-(\d+)\.index$", name)[1]) for name in names), default=0)

    def _progress(self, sight):
        return f"the job runs, {'no step yet' if self._step is None else f'step {self._step}'}, {self._costs()}"

    def _costs(self):
        dollars = f" and about ${self._ledger.dollars:.2f}" if self._ledger.dollars else ""
        return f"{self._ledger.hours:.2f} machine hours{dollars}"

    def _say(self, text):
        """Prints a line with the time, unless it was the last one already."""
        if text != self._said:
            comment = "# " if self._settings.dry_run else ""
            print(f"{comment}{time.strftime('%H:%M:%S')} {self._settings.vm}: {text}", flush=True)
        self._said = text


def _runs(sight):
    return (sight.job or {}).get("state") in ("running", "stopping")
