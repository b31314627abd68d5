"""The only place that starts processes."""

import contextlib
import dataclasses
import os
import shlex
import signal
import subprocess
import tempfile
import time

from scripts.cloud.errors import CloudError

TIMED_OUT = 124  # as timeout(1) has it


@dataclasses.dataclass(frozen=True)
class Result:
    """How a process ended."""

    returncode: int
    stdout: str = ""
    stderr: str = ""

    @property
    def ok(self):
        """Whether it succeeded."""
        return self.returncode == 0


class Shell:
    """Runs commands, or with `dry_run` prints them in a form that can be pasted and runs none.

    No shell ever reads an argument here: a command is a list of words.
    """

    def __init__(self, dry_run=False):
        self.dry_run = dry_run

    def run(self, argv, timeout=None, stdin="", assumed="", tick=None, every=15.0):
        """Runs a command to its end and returns what it printed.

        The command has a session of its own: Ctrl-C, or the end of the time, ends it with all its children, such as
        the ssh of a gcloud.

        Args:
          argv: the command as a list of words.
          timeout: seconds after which it is killed; the status is then `TIMED_OUT`.
          stdin: text for its standard input.
          assumed: what a dry run takes for the output, so that it can go on to the next command.
          tick: called without arguments every `every` seconds while the command runs.
          every: seconds.

        Returns:
          A `Result`.

        Raises:
          CloudError: the program is not installed.
        """
        if self.dry_run:
            self._print(argv)
            return Result(0, assumed)
        process = _start(
            argv,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            encoding="utf-8",
            errors="replace",
            start_new_session=True,
        )
        end = None if timeout is None else time.monotonic() + timeout
        try:
            while True:
                left = None if end is None else max(0.0, end - time.monotonic())
                pause = left if tick is None else every if left is None else min(every, left)
                try:
                    stdout, stderr = process.communicate(stdin, timeout=pause)
                    return Result(process.returncode, stdout, stderr)
                except subprocess.TimeoutExpired:
                    if end is not None and time.monotonic() >= end:
                        break
                    tick()
        except BaseException:
            _end(process)
            raise
        stdout, stderr = _end(process)
        return Result(TIMED_OUT, stdout, f"{stderr}\nno answer within {timeout:g} s".strip())

    def stream(self, argv, take):
        """Runs a command to its end and hands over what it prints while it does.

        As with `run`, the command has a session of its own, and what interrupts this ends it.

        Args:
          argv: the command as a list of words.
          take: function of each line of its standard output, without its end. Bytes that are not UTF-8 come as
            surrogates.

        Returns:
          A `Result` without the standard output.
        """
        if self.dry_run:
            self._print(argv)
            return Result(0)
        with tempfile.TemporaryFile("w+", encoding="utf-8", errors="replace") as stderr:
            process = _start(
                argv,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=stderr,
                start_new_session=True,
            )
            try:
                for line in process.stdout:
                    take(line.rstrip(b"\n").decode("utf-8", "surrogateescape"))
                returncode = process.wait()
            except BaseException:
                _end(process)
                raise
            stderr.seek(0)
            return Result(returncode, "", stderr.read())

    def attach(self, argv, stdin=None):
        """Runs a command on this terminal and returns its exit status.

        Ctrl-C reaches the command as it reaches this process.

        Args:
          argv: the command as a list of words.
          stdin: a file for its standard input; None: this terminal's.
        """
        if self.dry_run:
            self._print(argv)
            return 0
        process = _start(argv, stdin=stdin)
        try:
            return process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise

    def sleep(self, seconds):
        """Waits; a dry run does not."""
        if not self.dry_run:
            time.sleep(seconds)

    @staticmethod
    def _print(argv):
        print(shlex.join(argv), flush=True)


def _start(argv, **options):
    try:
        return subprocess.Popen(argv, **options)
    except FileNotFoundError:
        hint = {
            "gcloud": "the Google Cloud CLI is needed: https://cloud.google.com/sdk/docs/install",
            "gsutil": "it comes with the Google Cloud CLI: https://cloud.google.com/sdk/docs/install",
        }
        raise CloudError(f"{argv[0]} is not installed. {hint.get(argv[0], '')}".strip(), "not_installed") from None


def _end(process):
    """Ends a command with all its children and returns what it had printed."""
    for number, seconds in ((signal.SIGTERM, 5), (signal.SIGKILL, 5)):
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, number)
        try:
            return process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            continue
    return "", ""
