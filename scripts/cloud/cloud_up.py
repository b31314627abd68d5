"""make cloud-up: the bucket and the TPU VM, made if they are not there yet."""

from scripts.cloud import buckets, checks, prices, prompt, tpu, tpu_types
from scripts.cloud.errors import UsageError


def main(settings, gcloud):
    """Looks at what is there, asks, and makes the rest; returns an exit status. Run again, it goes on where it was."""
    settings.need("VM", "BUCKET")
    bucket = buckets.look(settings, gcloud)
    if settings.control_vm:
        _check_control_vm(settings, gcloud)
        node = None
    else:
        node = look_at_tpu(settings, gcloud)

    plan = []
    if bucket is None:
        plan.append(f"make the private bucket {settings.bucket} in {gcloud.region}")
    if not settings.control_vm:
        plan += _plan_tpu(settings, gcloud, node)
    if plan:
        if checks.before_spending(settings, gcloud):
            prompt.say(settings, "Nothing was made: mend what failed, then run the command again.")
            return checks.EXIT_FAILED
        question = " and ".join(plan)
        prompt.confirm(settings, question[0].upper() + question[1:])
    if bucket is None:
        gcloud.bucket_create()
        prompt.say(settings, f"{settings.bucket} is made.")
    if not settings.control_vm:
        _bring_up(settings, gcloud, node)
    prompt.say(settings, f"{settings.vm} and {settings.bucket} are ready. Next: {settings.command('preflight')}")
    return 0


def _check_control_vm(settings, gcloud):
    vm = gcloud.instance_describe()
    if vm is None:
        raise UsageError(
            f"there is no VM {settings.control_vm} in {gcloud.zone}. Make one of the kind you need, labelled so that "
            f"clean-cloud finds it: gcloud compute instances create {settings.control_vm} --zone={gcloud.zone} "
            f"--labels={','.join(f'{k}={v}' for k, v in settings.labels.items())} --scopes=cloud-platform "
            "--machine-type=... --image-family=... --image-project=..."
        )
    if vm.get("status") != "RUNNING":
        raise UsageError(
            f"the VM {settings.control_vm} is {vm.get('status')}: "
            f"gcloud compute instances start {settings.control_vm} --zone={gcloud.zone}"
        )


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
    try:
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
    except KeyboardInterrupt:
        print(
            f"\nInterrupted, but the TPU may still be coming, and costs once it is there. "
            f"Go on waiting: {settings.command('cloud-up')}\nGive it up: {settings.command('clean-cloud')}",
            flush=True,
        )
        raise
