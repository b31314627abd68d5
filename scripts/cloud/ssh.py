"""make ssh: a shell on the machine that runs the program."""


def main(settings, gcloud):
    """Opens it; returns its exit status."""
    settings.need("VM")
    return gcloud.shell.attach(gcloud.ssh())
