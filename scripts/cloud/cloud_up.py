"""make cloud-up: the bucket and the TPU VM or CONTROL_VM, made if they are not there yet."""

import time

from scripts.cloud import buckets, checks, prices, prompt, tpu, tpu_types
from scripts.cloud.errors import CloudError, UsageError
from scripts.cloud.vm import VM

_WITHOUT_DRIVER = "debian-cloud/debian-12"
_BOOT_SECONDS = 600
_LOOK_SECONDS = 10


def main(settings, gcloud):
    """Looks at what is there, asks, and makes the rest; returns an exit status. Run again, it goes on where it was."""
    settings.need("VM", "BUCKET")
    bucket = buckets.look(settings, gcloud)
    if settings.control_vm:
        machine = gcloud.instance_describe(assumed=None)
    else:
        machine = look_at_tpu(settings, gcloud)

    plan = []
    if bucket is None:
        plan.append(f"make the private bucket {settings.bucket} in {gcloud.region}")
    plan += (_plan_control_vm if settings.control_vm else _plan_tpu)(settings, gcloud, machine)
    if plan:
        if checks.before_spending(settings, gcloud):
            prompt.say(settings, "Nothing was made: mend what failed, then run the command again.")
            return checks.EXIT_FAILED
        question = " and ".join(plan)
        prompt.confirm(settings, question[0].upper() + question[1:])
    if bucket is None:
        gcloud.bucket_create()
        prompt.say(settings, f"{settings.bucket} is made.")
    try:
        (_bring_up_control_vm if settings.control_vm else _bring_up)(settings, gcloud, machine)
    except KeyboardInterrupt:
        print(
            f"\nInterrupted, but {settings.vm} may still be coming, and costs once it is there. "
            f"Go on waiting: {settings.command('cloud-up')}\nGive it up: {settings.command('clean-cloud')}",
            flush=True,
        )
        raise
    prompt.say(settings, f"{settings.vm} and {settings.bucket} are ready. Next: {settings.command('preflight')}")
    return 0


def _plan_control_vm(settings, gcloud, vm):
    what = f"{settings.control_vm} ({settings.machine_type}{_gpus(settings)}) in {gcloud.zone}"
    if vm is None:
        if settings.accelerator and settings.control_image == _WITHOUT_DRIVER:
            raise UsageError(
                f"ACCELERATOR={settings.accelerator} needs CONTROL_IMAGE=project/family, an image that has NVIDIA's "
                f"driver, gcloud, and Python 3.9 to 3.11 with venv; {_WITHOUT_DRIVER}, the default, has no driver."
            )
        return [
            f"make the VM {what} from {settings.control_image}: {prices.describe(settings)}, until make clean-cloud"
        ]
    if vm.get("status") in ("TERMINATED", "SUSPENDED"):
        return [f"start the VM {settings.control_vm}: it costs until it is stopped"]
    if vm.get("status") != "RUNNING":
        raise UsageError(f"the VM {settings.control_vm} is {vm.get('status')}: wait, and run the command again.")
    return []


def _gpus(settings):
    return f", {settings.accelerator}" if settings.accelerator else ""


def _bring_up_control_vm(settings, gcloud, vm):
    """Makes or starts it, and waits until a program can be set up there."""
    if vm is None:
        gcloud.instance_create()
        prompt.say(settings, f"{settings.control_vm} is made.")
    elif vm.get("status") != "RUNNING":
        gcloud.instance_start()
    else:
        return
    progress = prompt.Progress(settings, f"waiting for {settings.control_vm}")
    end = time.monotonic() + _BOOT_SECONDS
    while True:
        try:
            result = VM(settings, gcloud).run("python3 -c 'import ensurepip, venv'")
            if result.ok:
                return
            trouble = "its python3 cannot make virtual environments"
        except CloudError as e:
            if e.kind != "unreachable":
                raise
            trouble = "it does not answer"
        if time.monotonic() > end:
            raise CloudError(
                f"{settings.control_vm} runs, and costs, but {trouble} after {_BOOT_SECONDS // 60} minutes. Look: "
                f"{settings.command('ssh')} Delete it: {settings.command('clean-cloud')}"
            )
        progress()
        gcloud.shell.sleep(_LOOK_SECONDS)


def look_at_tpu(settings, gcloud):
    """The TPU VM as the API describes it, or None; refuses one that cannot be used."""
    node = gcloud.tpu_describe(assumed=None)
    if node is None:
        elsewhere = [other for other in gcloud.tpu_list(labelled=False) if tpu.name_of(other) == settings.tpu_name]
        if elsewhere:
            zone = tpu.zone_of(elsewhere[0])
            raise UsageError(
                f"there is a TPU {settings.tpu_name} in {zone}, not in {gcloud.zone}: give ZONE={zone}, or another "
                "TPU_NAME to make a second one."
            )
        return None
    if tpu.type_of(node):
        tpu_types.parse(tpu.type_of(node))
    if not tpu.is_ours(node):
        prompt.say(
            settings,
            f"The TPU {settings.tpu_name} was not made by make cloud-up: it is used as it is, and clean-cloud will "
            "not delete it.",
        )
        if tpu.state(node) in tpu.GONE + tpu.STOPPED:
            raise UsageError(f"the TPU {settings.tpu_name} is {tpu.state(node)}: delete or start it yourself first.")
    return node


def _plan_tpu(settings, gcloud, node):
    state = tpu.state(node)
    what = f"{settings.tpu_name} ({settings.tpu_type.name}, {settings.image}) in {gcloud.zone}"
    price = f"{prices.describe(settings)}, until make clean-cloud"
    if node is None:
        return [f"{'ask in line for' if settings.queued else 'make'} the TPU {what}: {price}"]
    if state in tpu.GONE:
        return [f"delete the {state} TPU {settings.tpu_name} and make {what}: {price}"]
    if state in tpu.STOPPED:
        return [f"start the TPU {settings.tpu_name}: {price}"]
    return []


def _bring_up(settings, gcloud, node):
    state = tpu.state(node)
    if node is None and settings.queued and gcloud.queued_describe(assumed=None):
        tpu.wait_in_queue(settings, gcloud)
    elif node is None:
        tpu.make(settings, gcloud)
    elif state in tpu.COMING and tpu.queue_of(node) == settings.tpu_name:
        tpu.wait_in_queue(settings, gcloud)
    elif state in tpu.GONE:
        tpu.remove(settings, gcloud)
        tpu.make(settings, gcloud)
    else:
        if state in tpu.STOPPED:
            gcloud.tpu_start()
        tpu.wait(settings, gcloud)
