"""What only the program can check: its flags, files and model on the machine, and its compilation for the TPU, here."""

import dataclasses
import re

from scripts.cloud import launch, sync
from scripts.cloud.checks import Unmet
from scripts.cloud.gcloud import quoted
from scripts.cloud.vm import VM

_BUSY = 9
_SECONDS = 1800  # a vocabulary that has to be trained, or a large task that has to be read, takes minutes


def accepts(settings, gcloud):
    """Runs the program on the machine, with --check_only, after copying code and data as the training would.

    Returns:
      What is to be said of it.

    Raises:
      Unmet: the program refuses its settings.
    """
    task = settings.program.get("TASK")
    program = {**settings.program, "ARGS": f"{settings.program.get('ARGS', '')} --check_only".strip()}
    settings = dataclasses.replace(settings, verb="finetune" if task else "pretrain", program=program)
    launch.check(settings)
    variables = sync.send_data(settings, gcloud)
    sync.set_up(settings, gcloud, sync.send_code(settings, gcloud))
    vm = VM(settings, gcloud)
    # The lock of the machine's job: two programs cannot have a TPU at once.
    lock = ["flock", "--nonblock", f"--conflict-exit-code={_BUSY}", launch.lock_file(settings)]
    command = quoted([*lock, *launch.command(settings, gcloud, variables)])
    result = vm.run(f"cd {vm.folder}/code && exec {command}", timeout=_SECONDS)
    if result.returncode == _BUSY:
        return "not asked, since a job runs on the machine"
    if not result.ok:
        said = (result.stderr.strip() or "nothing was said").splitlines()
        message = next((line for line in reversed(said) if re.match(r"\w+\.py: ", line)), said[-1])
        raise Unmet(f"{message.rstrip('.')} (status {result.returncode})")
    return f"{settings.verb} accepts its settings"


def compiles(settings, gcloud):
    """Compiles the training for TPU_TYPE on this machine, as `make preflight-tpu` does.

    Raises:
      Unmet: it does not compile or does not fit.
    """
    if gcloud.shell.attach(["scripts/preflight_tpu.sh"]):
        raise Unmet(f"the training does not compile for {settings.tpu_type.name}, or does not fit: see above")
    return f"the training compiles for {settings.tpu_type.name} and fits"
