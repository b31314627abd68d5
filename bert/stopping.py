"""What SIGTERM and SIGINT do: end the program at once, or after the step that is being made.

A machine that is about to vanish sends SIGTERM, and a person presses Ctrl-C. While a training runs, `after_step` makes
the first signal a request, so that a checkpoint can be saved; anywhere else it ends the program, which loses nothing
that the next run would not make again. A second signal ends the process without any ceremony.
"""

import contextlib
import os
import signal
import threading

from absl import logging

EXIT_STOPPED = 75


class Stopped(SystemExit):
    """The program was told to stop; run again, it goes on.

    It derives from SystemExit, so that nothing on the way takes it for a failure, and the exit status follows.
    """

    def __init__(self, reason):
        super().__init__(EXIT_STOPPED)
        self.reason = reason

    def __str__(self):
        return self.reason


class _State:
    process = None
    deferred = False
    reason = None


def install():
    """Makes the two signals stop this program as the module describes."""
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, _handle)
    _State.process = os.getpid()


@contextlib.contextmanager
def after_step():
    """Within it the first signal is only noted, for `requested` to tell.

    Raises:
      Stopped: at its end, if a signal has come and nothing else is being raised.
    """
    _State.deferred = True
    try:
        yield
    finally:
        _State.deferred = False
    if _State.reason:
        raise Stopped(_State.reason)


def requested():
    """Name of the signal that asks for a stop, or None."""
    return _State.reason


def request(reason):
    """Asks for a stop as a signal does, unless one has come."""
    _State.reason = _State.reason or reason


def _handle(number, frame):
    del frame
    if _State.reason or os.getpid() != _State.process:
        # The second signal; or a worker process, which inherited this handler and has nothing to tidy up.
        os._exit(EXIT_STOPPED)
    _State.reason = signal.Signals(number).name
    if _State.deferred:
        # Logging takes locks that the interrupted code may hold.
        threading.Thread(target=_announce, args=(_State.reason,), daemon=True).start()
    else:
        raise Stopped(_State.reason)


def _announce(reason):
    logging.warning("%s: saving a checkpoint after this step; a second signal ends the program at once.", reason)
