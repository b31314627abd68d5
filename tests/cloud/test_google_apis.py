"""The real gcloud takes the stand-ins for Google: a machine is made, logged in to, and gone with all that ran on it."""

import pathlib
import subprocess

TPU = ("gcloud", "compute", "tpus", "tpu-vm")


def run(cloud, *command, check=True):
    result = subprocess.run(command, env=cloud.env, capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert not check or result.returncode == 0, result.stderr
    return result


def running(pid):
    try:
        return bool(pathlib.Path(f"/proc/{pid}/cmdline").read_bytes())  # empty: it ended, and nobody has asked how
    except FileNotFoundError:
        return False


def create(cloud, name="my-tpu", check=True):
    flags = ("--accelerator-type=v3-8", "--version=tpu-vm-tf-2.15.1-se", "--labels=run=mine", "--quiet")
    return run(cloud, *TPU, "create", name, *flags, check=check)


def test_a_machine_lives_and_dies_with_its_node(cloud):
    create(cloud)
    started = "setsid sleep 1000 >/dev/null 2>&1 </dev/null & echo $! > pid; pwd"
    shown = run(cloud, *TPU, "ssh", "my-tpu", "--worker=0", f"--command={started}").stdout
    assert shown.splitlines()[-1] == str(cloud.home())  # the first connection also makes a key, aloud
    pid = int((cloud.home() / "pid").read_text())
    assert running(pid)
    cloud.set_node("my-tpu", state="PREEMPTED")
    assert not running(pid)
    refused = run(cloud, *TPU, "ssh", "my-tpu", "--worker=0", "--command=true", check=False)
    assert refused.returncode == 1 and "PREEMPTED" in refused.stderr
    run(cloud, *TPU, "delete", "my-tpu", "--quiet")
    assert not cloud.state()["nodes"]


def test_an_operation_fails_when_told_to(cloud):
    cloud.fail_operation("create .*my-tpu", 8, "There is no more capacity in the zone")
    failed = create(cloud, check=False)
    assert failed.returncode != 0 and "no more capacity" in failed.stderr
    assert not cloud.state()["nodes"]
