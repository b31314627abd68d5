"""Machines of the stand-in for Google's APIs: folders and processes on this one, reached by ssh.

A machine has a home folder, a `python3` with TensorFlow, as the images of TPU VMs have, and an environment in which
Cloud Storage is the stand-in. It has no TPU: REHEARSAL_DEVICE=cpu in its environment tells the scripts so. An sshd of
its own on a loopback port lets in whoever holds a key that went through the API. Where there is no sshd, the `ssh` in
`Machines.folder`/bin runs the command without one.

Killing a machine kills everything that was started on it and removes its folder, as a preemption does. That goes
through /proc: Linux only.

The `ssh` in the folder bin must come first on the PATH of gcloud; it finds a machine by its address. It also provokes
what networks do: a file `drop-NAME` in the folder has the word `start`, `end` or a number of seconds, and a part of a
command in a second line; the next connection with such a command fails before, after, or in the middle of it.
"""

import contextlib
import getpass
import os
import pathlib
import shlex
import shutil
import signal
import socket
import stat
import subprocess
import sys
import sysconfig
import time

_SSH = """#!/usr/bin/env bash
# Takes the addresses of the stand-in's machines for theirs; any other is left to the real program.
folder={folder}
address=
for word in "$@"; do
  case $word in *@198.1[89].*) address=${{word#*@}} ;; esac
done
[[ -n $address ]] || exec {ssh} "$@"
machine=$folder/machines/$address
if [[ ! -e $machine/port ]]; then
  echo "ssh: connect to host $address port 22: Connection timed out" >&2
  exit 255
fi
port=$(<"$machine/port")
if [[ $port == none ]]; then
  while [[ $# -gt 0 && $1 != -- ]]; do shift; done
  shift || true
  connect=(env SSH_ORIGINAL_COMMAND="$*" "$machine/session")
else
  connect=({ssh} -o HostName=127.0.0.1 -o "Port=$port" "$@")
fi
drop=
for file in "$folder"/drop-*; do
  if [[ -e $file && "$*" == *"$(tail -n 1 "$file")"* ]]; then
    drop=$(head -n 1 "$file")
    rm "$file"
    break
  fi
done
case $drop in
  '') exec "${{connect[@]}}" ;;
  start) ;;
  end) "${{connect[@]}}" ;;
  *) timeout --foreground --signal=KILL "$drop" "${{connect[@]}}" ;;
esac
echo "client_loop: send disconnect: Broken pipe" >&2
exit 255
"""

_SESSION = """#!/usr/bin/env bash
# What a login on the machine is: its environment and its home folder.
{exports}
cd "$HOME" || exit 1
if [[ -n $SSH_ORIGINAL_COMMAND ]]; then exec bash -c "$SSH_ORIGINAL_COMMAND"; fi
exec bash
"""

_SSHD = """ListenAddress 127.0.0.1
Port {port}
HostKey {host_key}
PidFile {folder}/sshd.pid
AuthorizedKeysFile {folder}/authorized_keys
ForceCommand {folder}/session
UsePAM no
StrictModes no
PasswordAuthentication no
KbdInteractiveAuthentication no
PermitRootLogin prohibit-password
MaxSessions 50
MaxStartups 50
"""


def address(number, host=0):
    """The made-up address of a machine, from a range that nobody's machines have (RFC 2544)."""
    return f"198.{18 + (host > 0)}.{(int(number) + host) // 250 % 250}.{(int(number) + host) % 250 + 1}"


def find_sshd():
    """Path of sshd, or None."""
    return shutil.which("sshd", path=os.environ.get("PATH", "") + ":/usr/local/sbin:/usr/sbin:/sbin")


class Machines:
    """The machines.

    Attributes:
      folder: what they need; `folder`/bin belongs first on the PATH of gcloud.
      variables: dict of the variables in their environment, beside those of every login.
    """

    def __init__(self, folder):
        self.folder = pathlib.Path(folder).resolve()
        self.variables = {}
        self._folders, self._sshds = {}, {}
        (self.folder / "machines").mkdir(parents=True, exist_ok=True)
        (self.folder / "bin").mkdir(exist_ok=True)
        search = os.pathsep.join(p for p in os.environ["PATH"].split(os.pathsep) if p != str(self.folder / "bin"))
        ssh = shutil.which("ssh", path=search) or "ssh"
        _script(self.folder / "bin" / "ssh", _SSH.format(folder=shlex.quote(str(self.folder)), ssh=shlex.quote(ssh)))

    def boot(self, number, address):
        """Starts the machine `number` at an address, with an empty home folder."""
        folder = self.folder / "machines" / address
        self._folders[number] = folder
        (folder / "home").mkdir(parents=True)
        (folder / "bin").mkdir()
        (folder / "authorized_keys").write_text("")
        _script(folder / "bin" / "python3", f'#!/usr/bin/env bash\nexec {shlex.quote(sys.executable)} "$@"\n')
        for tool in ("gcloud", "gsutil"):  # they have a Python of their own
            path = shutil.which(tool)
            if path:
                _script(folder / "bin" / tool, f'#!/usr/bin/env bash\nPYTHONPATH= exec {shlex.quote(path)} "$@"\n')
        user = getpass.getuser()
        variables = {
            "HOME": str(folder / "home"),
            "USER": user,
            "LOGNAME": user,
            "PATH": f"{folder / 'bin'}:{os.environ['PATH']}",
            "LANG": "C.UTF-8",
            "CLOUDSDK_CONFIG": str(folder / "home" / ".config" / "gcloud"),
            "PYTHONPATH": sysconfig.get_path("purelib"),
            "CUDA_VISIBLE_DEVICES": "",
            "TF_CPP_MIN_LOG_LEVEL": "2",
            "REHEARSAL_DEVICE": "cpu",
            "FAKE_VM": str(folder),
            **self.variables,
        }
        exports = "\n".join(f"export {name}={shlex.quote(value)}" for name, value in variables.items())
        _script(folder / "session", _SESSION.format(exports=exports))
        port = self._start_sshd(number, folder) if find_sshd() else "none"
        (folder / "port").write_text(f"{port}\n")

    def _start_sshd(self, number, folder):
        with socket.socket() as s:
            s.bind(("127.0.0.1", 0))
            port = s.getsockname()[1]
        host_key = self.folder / f"host-key-{number}"  # a machine that was stopped is known again
        if not host_key.exists():
            key = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", host_key]
            subprocess.run(key, check=True, stdin=subprocess.DEVNULL)
        (folder / "sshd_config").write_text(_SSHD.format(port=port, folder=folder, host_key=host_key))
        if os.geteuid() == 0:
            os.makedirs("/run/sshd", exist_ok=True)  # sshd insists on it when it is root's
        command = [find_sshd(), "-D", "-f", folder / "sshd_config", "-E", folder / "sshd.log"]
        self._sshds[number] = subprocess.Popen(command, stdin=subprocess.DEVNULL)
        for _ in range(100):
            with socket.socket() as s:
                if s.connect_ex(("127.0.0.1", port)) == 0:
                    return port
            time.sleep(0.05)
        raise RuntimeError(f"sshd does not answer: {(folder / 'sshd.log').read_text()}")

    def authorize(self, number, keys):
        """Lets in the holders of these public keys, and nobody else."""
        folder = self._folders.get(number)
        if folder and folder.exists():
            (folder / "authorized_keys").write_text("".join(f"{key}\n" for key in keys))

    def kill(self, number):
        """Ends a machine at once, and all that ran on it; its disk is gone."""
        folder = self._folders.pop(number, None)
        if folder is None:
            return
        (folder / "port").unlink(missing_ok=True)
        sshd = self._sshds.pop(number, None)
        if sshd:
            sshd.kill()
            sshd.wait()
        while pids := _processes(folder):
            for pid in pids:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.02)
        shutil.rmtree(folder, ignore_errors=True)

    def kill_all(self):
        """Ends all of them."""
        for number in list(self._folders):
            self.kill(number)


def _processes(folder):
    """Ids of the processes that run on the machine of a folder."""
    mark, pids = f"\0FAKE_VM={folder}\0".encode(), []
    for entry in pathlib.Path("/proc").glob("[0-9]*"):
        try:
            if mark in b"\0" + (entry / "environ").read_bytes() and _state(entry) != "Z":
                pids.append(int(entry.name))
        except OSError:
            continue  # it ended, or is somebody else's
    return pids


def _state(entry):
    return (entry / "stat").read_text().rpartition(")")[2].split()[0]


def _script(path, text):
    path.write_text(text)
    path.chmod(path.stat().st_mode | stat.S_IXUSR)
