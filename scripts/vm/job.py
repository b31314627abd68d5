"""A job that goes on without whoever started it. Runs on the machine of the program, with its own Python.

    python3 job.py start FOLDER ... -- COMMAND     starts the command detached, unless it runs already
    python3 job.py status FOLDER                   tells its state
    python3 job.py log FOLDER --nonce=X ...        writes its log, line by line with positions
    python3 job.py stop FOLDER                     sends SIGTERM and waits
    python3 job.py kill FOLDER                     sends SIGKILL to all its processes

Standard library only. `start`, `status`, `stop` and `kill` answer with one line of JSON:

    state        absent, running, stopping, finished (status 0), stopped (75), failed, or died (without a status)
    id verb command host pid started ended exit_status stop_requested log_start log_size ...

Whoever asks may be cut off at any moment, and gcloud then runs the same command again: each of these can be repeated,
and none exits with 255, which gcloud takes for a broken connection. A job holds a lock as long as any of its processes
lives; the system drops it when they are gone, however they went. While a job runs, its log and its state are copied to
the bucket every half minute, and once more at its end.
"""

import argparse
import contextlib
import datetime
import errno
import fcntl
import json
import os
import pathlib
import platform
import re
import shutil
import signal
import subprocess
import sys
import threading
import time
import traceback

EXIT_TROUBLE = 3
_STOPPED = 75
_FIRST_MIRROR_SECONDS = 5
_MIRROR_SECONDS = 30
_RECORD_BYTES = 4096
_GRACE_SECONDS = 2


class Job:
    """A job's folder: `job.json`, `log`, and `stop` once it is to stop.

    Args:
      folder: path of it.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.record_file = self.folder / "job.json"
        self.log_file = self.folder / "log"
        self.stop_file = self.folder / "stop"

    def record(self):
        """What is known of the last start, as a dict; empty if there was none."""
        try:
            return json.loads(self.record_file.read_text(encoding="utf-8"))
        except (FileNotFoundError, ValueError):
            return {}

    def write_record(self, record):
        """Writes `job.json`, on a full disk as well."""
        # A file of this size has room for what is added at the end, so that it can be changed where it is.
        text = (json.dumps(record) + "\n").rjust(_RECORD_BYTES)
        temporary = self.record_file.with_suffix(".tmp")
        try:
            temporary.write_text(text, encoding="utf-8")
            os.replace(temporary, self.record_file)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink()
            with self.record_file.open("r+", encoding="utf-8") as f:
                f.write(text)

    def status(self):
        """The state of the job, as the module describes."""
        record = self.record()
        if not record:
            return {"state": "absent"}
        if is_held(record["lock"], self.folder):
            state = "stopping" if self.stop_file.exists() else "running"
        else:
            record = self.record()  # it may have ended in between
            ended = {None: "died", 0: "finished", _STOPPED: "stopped"}
            state = ended.get(record["exit_status"], "failed")
        size = self.log_file.stat().st_size if self.log_file.exists() else 0
        asked = self.stop_file.exists()
        return {**record, "state": state, "stop_requested": asked, "log_size": size, "time": now()}


def start(job, arguments):
    """Starts a job unless one runs, or this very start has been made before. Returns its state.

    Beside the fields of a state it has `started`, whether this call started it, and, where another job of the machine
    is in the way, the state `busy` and the `holder`'s folder.
    """
    job.folder.mkdir(parents=True, exist_ok=True)
    lock_file = pathlib.Path(arguments.lock or job.folder / "lock").resolve()
    lock = lock_file.open("a+", encoding="utf-8")
    while not acquire(lock):
        status, holder = job.status(), lock_file.read_text(encoding="utf-8").strip()
        if status["state"] in ("running", "stopping"):
            return {**status, "started": False}
        if holder not in ("", str(job.folder)):
            return {"state": "busy", "holder": holder, "started": False}
        # Somebody else is about to start it.
    lock.truncate(0)
    lock.write(f"{job.folder}\n")
    lock.flush()
    if job.record().get("id") == arguments.id:
        lock.close()
        return {**job.status(), "started": False}
    if not job.log_file.exists() and arguments.mirror:
        restore_log(job, arguments.mirror)
    job.stop_file.unlink(missing_ok=True)
    with job.log_file.open("ab") as log:
        log_start = log.tell()
        log.write(f"=== {arguments.verb} started {now()} on {platform.node()}\n".encode())
    record = {"id": arguments.id, "verb": arguments.verb, "command": arguments.command, "lock": str(lock_file)}
    record.update(host=platform.node(), pid=None, started=now(), ended=None, exit_status=None, log_start=log_start)
    job.write_record(record)
    detach(lambda ready: supervise(job, record, lock, arguments.mirror, ready))
    return {**job.status(), "started": True}


def detach(run):
    """Runs a function in a process that belongs to no terminal and no connection, and waits until it is ready.

    Args:
      run: function of a function without arguments, which it calls when it is ready.
    """
    reading, writing = os.pipe()
    if os.fork():
        os.close(writing)
        os.read(reading, 1)  # a byte, or the end if the process is gone
        os.close(reading)
        return
    try:
        os.close(reading)
        os.setsid()
        if os.fork():
            os._exit(0)
        nothing = os.open(os.devnull, os.O_RDWR)
        for number in (0, 1, 2):
            os.dup2(nothing, number)
        run(lambda: os.close(writing))
    finally:
        os._exit(0)


def supervise(job, record, lock, mirror, ready):
    """Runs the command to its end, copies its log to the bucket meanwhile, and writes down how it ended."""
    # A machine that shuts down tells every process; this one waits for the program. As handlers, unlike SIG_IGN, these
    # are not inherited by the command.
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, lambda *_: None)
    # Open in every process of the job, which thereby hold the lock.
    os.set_inheritable(lock.fileno(), True)
    log = job.log_file.open("ab")
    try:
        process = subprocess.Popen(
            record["command"],
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
            pass_fds=[lock.fileno()],
        )
    except OSError as e:
        note(log, f"{record['command'][0]} cannot be started: {e.strerror}")
        job.write_record({**record, "ended": now(), "exit_status": 127})
        ready()
        return
    record["pid"] = process.pid
    job.write_record(record)
    ready()
    done = threading.Event()
    mirroring = threading.Thread(target=keep_mirrored, args=(job, mirror, log, done), daemon=True)
    if mirror:
        mirroring.start()
    try:
        code = process.wait()
        record.update(ended=now(), exit_status=code if code >= 0 else 128 - code)
        note(log, f"=== {record['verb']} ended {record['ended']} with status {record['exit_status']}")
        job.write_record(record)
        end_rest(process.pid)
    except Exception:  # nobody else would ever see it
        note(log, traceback.format_exc())
    lock.close()
    done.set()
    if mirror:
        mirroring.join()


def end_rest(group):
    """Ends what a program has left behind, which would hold the lock as if it were still running."""
    for _ in range(10 * _GRACE_SECONDS):
        try:
            os.killpg(group, 0)
        except ProcessLookupError:
            return
        time.sleep(0.1)
    send(group, signal.SIGKILL, os.killpg)


def note(log, text):
    """Appends a line to the log, if there is room."""
    with contextlib.suppress(OSError):
        log.write(f"{text}\n".encode())
        log.flush()


# Copies in the bucket.


def keep_mirrored(job, mirror, log, done):
    """Copies the log and the state to the bucket now and then, and once more when the job is done."""
    trouble, seconds = None, _FIRST_MIRROR_SECONDS
    while True:
        last = done.wait(seconds)
        seconds = _MIRROR_SECONDS
        for pause in (5, 20, 60, 0) if last else (0,):
            before, trouble = trouble, copy_to(job, mirror)
            if not trouble:
                break
            if last:
                time.sleep(pause)
        if trouble and trouble != before:
            note(log, f"=== the log could not be copied to {mirror}: {trouble}")
        if last:
            return


def copy_to(job, mirror):
    """Copies the log and the state to a folder of a bucket; returns what went wrong, or None."""
    copies = job.folder / "copies"
    try:
        copies.mkdir(exist_ok=True)
        # Of a file that grows meanwhile the transfer would fail.
        shutil.copyfile(job.log_file, copies / "log")
        (copies / "status.json").write_text(json.dumps(job.status()) + "\n", encoding="utf-8")
    except OSError as e:
        return e.strerror
    return transfer([str(copies / "log"), str(copies / "status.json"), f"{mirror}/"])


def restore_log(job, mirror):
    """On a machine that is new to the run, its log goes on after what the machine before had written."""
    trouble = transfer([f"{mirror}/log", str(job.log_file)])
    if trouble:  # most likely there is none
        job.log_file.touch()


def transfer(paths):
    """Copies files to or from a bucket; returns what went wrong, or None."""
    command = ["gcloud", "storage", "cp"] if shutil.which("gcloud") else ["gsutil", "cp"]
    try:
        result = subprocess.run(
            [*command, *paths], stdin=subprocess.DEVNULL, capture_output=True, text=True, timeout=300
        )
    except (OSError, subprocess.TimeoutExpired) as e:
        return str(e)
    lines = result.stderr.strip().splitlines()
    return None if result.returncode == 0 else lines[-1] if lines else f"status {result.returncode}"


# The lock.


def acquire(lock):
    """Takes a lock; False if a job holds it. Whoever only looks holds it for an instant."""
    for _ in range(20):
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return True
        except BlockingIOError:
            time.sleep(0.05)
    return False


def is_held(lock_file, folder):
    """Whether a lock is held by the job of a folder."""
    try:
        with open(lock_file, encoding="utf-8") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_SH | fcntl.LOCK_NB)
                return False
            except BlockingIOError:
                return lock.read().strip() == str(folder)
    except FileNotFoundError:
        return False


# The log.


def write_log(job, arguments):
    """Writes lines of the log to standard output, and in the end, or where it ends now, the state.

    A line is `NONCE:BEGIN:END:TEXT`, where BEGIN and END are positions in the log, so that a reader whose connection
    breaks knows what it has, and knows a line that was cut short. `NONCE::alive` shows now and then that the connection
    works; `NONCE::{...}` is the state and the end.
    """
    position = first_position(job, arguments)
    out, nonce = sys.stdout.buffer, arguments.nonce.encode()
    out.write(b"\n")  # ends what a connection before may have left
    said = time.monotonic()
    while True:
        ends_after = not arguments.follow or job.status()["state"] not in ("running", "stopping")
        for line in lines_from(job.log_file, position, with_rest=ends_after):
            out.write(b"%s:%d:%d:%s\n" % (nonce, position, position + len(line), line.rstrip(b"\n")))
            position += len(line)
            said = time.monotonic()
        if ends_after:
            break
        if time.monotonic() - said > 10:
            out.write(b"%s::alive\n" % nonce)
            said = time.monotonic()
        out.flush()
        time.sleep(0.5)
    out.write(b"%s::%s\n" % (nonce, json.dumps(job.status()).encode()))
    out.flush()


def lines_from(path, position, with_rest):
    """Yields the lines of a file from a position on; one that is not ended yet only if `with_rest`."""
    try:
        with open(path, "rb") as f:
            f.seek(position)
            for line in f:
                if line.endswith(b"\n") or with_rest:
                    yield line
    except FileNotFoundError:
        return


def first_position(job, arguments):
    """Where in the log to begin."""
    if arguments.offset is not None:
        return arguments.offset
    earliest = datetime.datetime.now() - datetime.timedelta(seconds=arguments.since) if arguments.since else None
    position, starts, moment = 0, [], datetime.datetime.min
    for line in lines_from(job.log_file, 0, with_rest=True):
        moment = time_of(line, moment)
        if earliest is None or moment >= earliest:
            starts.append(position)
        position += len(line)
    if arguments.lines:
        starts = starts[-arguments.lines :]
    return starts[0] if starts else position


def time_of(line, before):
    """When a line of the log was written, in local time without a zone.

    Args:
      line: bytes.
      before: when the line before it was. Most lines tell only the time of day, some tell nothing.
    """
    match = re.match(rb"=== .*(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d)Z", line)
    if match:
        moment = datetime.datetime.fromisoformat(match[1].decode()).replace(tzinfo=datetime.timezone.utc)
        return moment.astimezone().replace(tzinfo=None)
    match = re.match(rb"(\d\d):(\d\d):(\d\d) ", line)
    if not match or before == datetime.datetime.min:
        return before
    moment = datetime.datetime.combine(before.date(), datetime.time(*(int(part) for part in match.groups())))
    # Past midnight; but several threads write, so a line may be a little older than the one before it.
    if moment < before - datetime.timedelta(minutes=1):
        moment += datetime.timedelta(days=1)
    return moment


def stop(job, arguments):
    """Asks a running job to stop, once, and waits for its end or for some seconds. Returns its state."""
    if job.status()["state"] == "running":
        # A second SIGTERM would end the program without a checkpoint, so only whoever makes the file sends one.
        with contextlib.suppress(FileExistsError), job.stop_file.open("x"):
            send(job.record()["pid"], signal.SIGTERM, os.kill)
    return wait_for_end(job, arguments.wait)


def kill(job, arguments):
    """Ends all processes of a running job at once. Returns its state."""
    if job.status()["state"] in ("running", "stopping"):
        send(job.record()["pid"], signal.SIGKILL, os.killpg)
    return wait_for_end(job, arguments.wait)


def wait_for_end(job, seconds):
    """Waits for the end of a job and returns its state."""
    end = time.monotonic() + seconds
    while job.status()["state"] in ("running", "stopping") and time.monotonic() < end:
        time.sleep(0.2)
    return job.status()


def send(pid, number, how):
    """Sends a signal to a process that may be gone."""
    if pid:
        with contextlib.suppress(ProcessLookupError):
            how(pid, number)


def now(seconds=0):
    """The time, or that so many seconds from now, as text."""
    moment = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=seconds)
    return moment.strftime("%Y-%m-%dT%H:%M:%SZ")


def main(argv):
    """Runs a verb and returns the exit status."""
    parser = argparse.ArgumentParser(description="Runs and follows a job that is detached from whoever started it.")
    verbs = parser.add_subparsers(dest="do", required=True)
    for name in ("start", "status", "log", "stop", "kill"):
        verbs.add_parser(name).add_argument("folder")
    starting, logging = verbs.choices["start"], verbs.choices["log"]
    starting.add_argument("--id", required=True, help="of this start: the same one never starts twice")
    starting.add_argument("--verb", required=True, help="what the job is called")
    starting.add_argument("--lock", help="file that no two jobs hold at once; default: one in the folder")
    starting.add_argument("--mirror", help="gs:// folder to copy the log and the state to")
    starting.add_argument("command", nargs="+")
    logging.add_argument("--nonce", required=True, help="mark of the lines")
    logging.add_argument("--offset", type=int, help="position in the log to begin at")
    logging.add_argument("--lines", type=int, default=0, help="begin so many lines before the end")
    logging.add_argument("--since", type=float, default=0, help="begin with what is not older than so many seconds")
    logging.add_argument("--follow", action="store_true", help="go on until the job ends")
    for name in ("stop", "kill"):
        verbs.choices[name].add_argument("--wait", type=float, default=20, help="seconds")
    arguments = parser.parse_args(argv)
    job = Job(arguments.folder)
    try:
        if arguments.do == "log":
            write_log(job, arguments)
        else:
            does = {"start": start, "stop": stop, "kill": kill, "status": lambda job, _: job.status()}
            print(json.dumps(does[arguments.do](job, arguments)), flush=True)
    except BrokenPipeError:  # whoever asked is gone
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)
    except OSError as e:
        what = f"the disk of {platform.node()} is full" if e.errno == errno.ENOSPC else e.strerror
        print(f"{e.filename or job.folder}: {what}", file=sys.stderr)
        return EXIT_TROUBLE
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
