"""Following the log of a job, across broken connections, to the job's end."""

import json
import sys
import uuid

from scripts.cloud import prompt
from scripts.cloud.errors import CloudError
from scripts.cloud.vm import ABSENT, VM

_PAUSES = (1, 5, 15, 30, 60)  # seconds
_INTERRUPTED = 130


def follow(settings, gcloud, offset=None, lines=0, since=0, to_the_end=True):
    """Prints the log of the job, until the job ends or where the log ends now.

    Args:
      settings: a `Settings`.
      gcloud: a `Gcloud`.
      offset: position in the log to begin at; None: `lines` and `since` tell.
      lines: how many lines before the end of the log to begin.
      since: begin with what was logged within so many seconds.
      to_the_end: whether to wait for the end of the job.

    Returns:
      The exit status of the job; 130 if Ctrl-C ended the following; 3 if the job ended without a status.

    Raises:
      CloudError: the machine is not there any more.
    """
    vm, reader = VM(settings, gcloud), _Reader(offset)
    tries = 0
    try:
        while True:
            where = ["--offset", reader.position] if reader.position is not None else []
            where += ["--lines", lines, "--since", since] if reader.position is None else []
            where += ["--follow"] if to_the_end else []
            script = vm.job_command("log", "--nonce", reader.nonce, *where)
            received = reader.received
            result = gcloud.shell.stream(gcloud.ssh(script), reader.take)
            if settings.dry_run:
                return 0
            if reader.state is not None:
                return _tell_end(settings, reader.state, to_the_end)
            if reader.received == received:
                tries += 1
                if not vm.lost(result.returncode, result.stderr):
                    raise CloudError(f"the log cannot be read on {settings.vm}: {result.stderr.strip()[-300:]}")
            else:
                tries = 0
            error = vm.unreachable(result.stderr)
            if error.kind != "unreachable" or tries > len(_PAUSES):
                raise CloudError(_with_places(settings, error), error.kind)
            _say(f"The connection broke; the job goes on without it. Connecting to {settings.vm} again.")
            gcloud.shell.sleep(_PAUSES[min(tries, len(_PAUSES) - 1)])
    except KeyboardInterrupt:
        _say(
            f"\nYou have left the log; the job goes on on {settings.vm}.\n"
            f"Come back: {settings.command('logs')}\nSee how far it is: {settings.command('status')}\n"
            f"End it with a checkpoint: {settings.command('stop')}"
        )
        return _INTERRUPTED


class _Reader:
    """Takes what `job.py log` writes, however often it begins anew, and prints each line of the log once."""

    def __init__(self, position):
        self.nonce = uuid.uuid4().hex
        self.position = position
        self.state = None  # of the job, once it has ended
        self.received = 0

    def take(self, line):
        """Takes a line, without its end."""
        if line == ABSENT:
            self.state = json.loads(ABSENT)
        if not line.startswith(f"{self.nonce}:"):
            return  # gcloud says something, or a line was cut
        self.received += 1
        begin, end, text = line[len(self.nonce) + 1 :].split(":", 2) if line.count(":") > 2 else ("", "", "")
        if not begin:
            self._take_news(line[len(self.nonce) + 2 :])
            return
        begin, end = int(begin), int(end)
        # A line that was cut short comes once more.
        whole = len(text.encode("utf-8", "surrogateescape")) in (end - begin - 1, end - begin)
        if whole and (self.position is None or begin >= self.position):
            sys.stdout.buffer.write(text.encode("utf-8", "surrogateescape") + b"\n")
            sys.stdout.buffer.flush()
            self.position = end

    def _take_news(self, news):
        if news.startswith("{"):
            self.state = json.loads(news)


def _tell_end(settings, state, to_the_end):
    if state["state"] == "absent":
        prompt.say(settings, f"Nothing was started in the run {settings.run} on {settings.vm} yet.")
        return 0
    if state["state"] in ("running", "stopping"):
        return 0
    status = state["exit_status"]
    told = {
        "finished": f"{state['verb']} is done; its output is in {settings.out}",
        "stopped": f"{state['verb']} was stopped; go on: {settings.command(state['verb'])}",
        "died": f"{state['verb']} was killed, or its machine went down; go on: {settings.command(state['verb'])}",
        "failed": f"{state['verb']} failed with status {status}; mended, go on: {settings.command(state['verb'])}",
    }
    _say(told[state["state"]])
    return 3 if status is None else status


def _with_places(settings, error):
    return (
        f"{error} The log and the state up to then are in {settings.job}, checkpoints in {settings.out}. "
        f"Go on on a new machine: {settings.command('watch')}"
    )


def _say(text):
    print(text, file=sys.stderr, flush=True)
