"""make preflight: everything that can be known before it costs, a line each, with the command that mends it."""

from scripts.cloud import checks, machine_checks, prompt, training_checks


def main(settings, gcloud):
    """Checks everything, also on the machine if it is there; returns an exit status."""
    settings.need("VM", "BUCKET")
    failed = checks.before_spending(settings, gcloud)
    node = None if settings.control_vm else gcloud.tpu_describe()
    if not settings.control_vm and node is None:
        prompt.say(settings, f"The TPU {settings.tpu_name} does not exist yet: {settings.command('cloud-up')}")
    else:
        failed += machine_checks.run(settings, gcloud, node)
        if not failed:
            failed += not checks.holds(settings, "program", lambda: training_checks.accepts(settings, gcloud))
    if settings.compile:
        failed += not checks.holds(settings, "compilation", lambda: training_checks.compiles(settings, gcloud))
    if failed:
        print(f"{failed} of the checks failed.", flush=True)
        return checks.EXIT_FAILED
    return 0
