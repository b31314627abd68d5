"""The machine that runs the program: worker 0 of the TPU VM, or CONTROL_VM."""

import json

from scripts.cloud import tpu
from scripts.cloud.errors import HINTS, CloudError, classify, reason
from scripts.cloud.gcloud import quoted

# gcloud tries an ssh that fails ten times: what takes longer than this does not answer.
ANSWER_SECONDS = 150
ABSENT = '{"state": "absent"}'


class VM:
    """The machine.

    Args:
      settings: a `Settings`.
      gcloud: a `Gcloud`.
    """

    def __init__(self, settings, gcloud):
        self._settings = settings
        self._gcloud = gcloud

    @property
    def folder(self):
        """The run's folder there, from the home folder."""
        return f"bert-runs/{self._settings.run}"

    def run(self, script, timeout=ANSWER_SECONDS, assumed=""):
        """Runs a script in the shell of the machine, in its home folder.

        gcloud runs it again whenever the connection breaks: it must be one that may be repeated.

        Args:
          script: text for bash; words from outside must have gone through `gcloud.quoted`.
          timeout: seconds.
          assumed: what a dry run takes for the output.

        Returns:
          A `shell.Result`.

        Raises:
          CloudError: the machine cannot be reached; says what has become of it.
        """
        result = self._gcloud.shell.run(self._gcloud.ssh(script), timeout=timeout, assumed=assumed)
        if self.lost(result.returncode, result.stderr):
            raise self.unreachable(result.stderr)
        return result

    @staticmethod
    def lost(returncode, stderr):
        """Whether a command failed for the connection, or for the machine not being there."""
        if returncode in (255, 124):
            return True
        return returncode == 1 and "ERROR: (gcloud.compute." in stderr

    def unreachable(self, stderr):
        """A `CloudError` that says why the machine cannot be reached."""
        name, kind = self._settings.vm, classify(stderr)
        if kind in ("auth", "not_installed", "no_project", "no_zone", "permission"):
            return CloudError(f"{name} cannot be reached: {reason(stderr)}. {HINTS[kind]}", kind)
        if not self._settings.control_vm:
            node = self._gcloud.tpu_describe()
            if node is None:
                make = self._settings.command("cloud-up")
                zone = self._gcloud.zone
                return CloudError(f"there is no TPU {name} in {zone}. Make it: {make}", "not_found")
            if tpu.state(node) in tpu.GONE + tpu.STOPPED:
                return CloudError(f"the TPU {name} is {tpu.state(node)}. {HINTS['terminal']}", "terminal")
        elif self._gcloud.instance_describe() is None:
            return CloudError(f"there is no VM {name} in {self._gcloud.zone}.", "not_found")
        return CloudError(
            f"{name} exists but does not answer: {reason(stderr)}. It may be booting, overloaded, or without memory: "
            f"try again in a minute, or look: {self._settings.command('ssh')}",
            "unreachable",
        )

    def job_command(self, verb, *arguments):
        """Text for the shell of the machine that runs a verb of `scripts/vm/job.py` in the folder of the code.

        Where there is no code yet the verb is not run, and the answer is that of a job that never was.
        """
        python = quoted(["python3", "scripts/vm/job.py", verb, "../job", *map(str, arguments)])
        return f"cd {self.folder}/code 2>/dev/null && exec {python}; echo {quoted([ABSENT])}"

    def job_status(self):
        """The state of the run's job there, as a dict; see `scripts/vm/job.py`.

        Raises:
          CloudError: the machine cannot be reached.
        """
        return self.ask_job("status", assumed=ABSENT)

    def ask_job(self, verb, *arguments, timeout=ANSWER_SECONDS, assumed="{}"):
        """What a verb of `scripts/vm/job.py` answers, as a dict.

        Raises:
          CloudError: the machine cannot be reached, or the verb fails there.
        """
        result = self.run(self.job_command(verb, *arguments), timeout, assumed)
        lines = result.stdout.strip().splitlines()
        if not result.ok or not lines:
            raise CloudError(f"{verb} failed on {self._settings.vm}: {reason(result.stderr)}.", "other")
        return json.loads(lines[-1])
