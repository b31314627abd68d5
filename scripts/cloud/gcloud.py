"""Every command line of gcloud and gsutil.

Google's command line for TPUs is in maintenance and may change: nothing outside this file knows it.
"""

import functools
import json
import re
import shlex
import shutil

from scripts.cloud.errors import PASSING, CloudError, UsageError, classify, failure
from scripts.cloud.settings import MANAGED_BY

# What a dry run takes for the usual answers.
_READY = {"state": "READY", "acceleratorType": "v3-8", "schedulingConfig": {"spot": True}}
_ACTIVE = {"state": {"state": "ACTIVE"}}
_RUNNING = {"status": "RUNNING"}
_BUCKET = {"location": ""}
_PAUSES = (2, 8)
# Machines take minutes to start, to stop and to go.
_CHANGE_SECONDS = 900
_QUERY_SECONDS = 90
# Of a VM: for TensorFlow, with the libraries of a GPU.
_DISK = "50GB"
_SSH_FLAGS = (
    *("-o ConnectTimeout=15", "-o ServerAliveInterval=15", "-o ServerAliveCountMax=4"),
    *("-o StrictHostKeyChecking=accept-new", "-o LogLevel=ERROR"),
)


class Gcloud:
    """The commands, one small method each. A method that fails raises a `CloudError`.

    Args:
      settings: a `Settings`.
      shell: a `Shell`.
    """

    def __init__(self, settings, shell):
        self.settings = settings
        self.shell = shell

    # Where.

    @functools.cached_property
    def zone(self):
        """ZONE, or the zone that gcloud is configured for."""
        return self.settings.zone or self._configured("compute/zone", "ZONE", "us-central1-b")

    @property
    def region(self):
        """The region of the zone."""
        return self.zone.rpartition("-")[0]

    @functools.cached_property
    def project(self):
        """PROJECT, or the project that gcloud is configured for."""
        return self.settings.project or self._configured("project", "PROJECT", "my-project")

    def _configured(self, key, variable, assumed):
        result = self.shell.run(["gcloud", "config", "get", key], timeout=_QUERY_SECONDS, assumed=assumed)
        value = result.stdout.strip()
        if not value or value == "(unset)":
            raise UsageError(f"{variable} is needed: give {variable}=..., or: gcloud config set {key} VALUE")
        return value

    # TPU VMs.

    def tpu_create(self, tick=None, timeout=None):
        """Makes the TPU VM and waits until it is there; failures are the caller's to tell apart.

        Returns:
          A `shell.Result`.
        """
        argv = [*self._tpu("create"), *self._machine("--version")]
        return self.shell.run(argv, timeout=timeout, tick=tick)

    def tpu_describe(self, assumed=_READY):
        """The TPU VM as the API describes it, or None if there is none of this name in the zone."""
        return self._describe(self._tpu("describe"), f"looking at the TPU {self.settings.tpu_name}", assumed)

    def tpu_start(self):
        """Starts a stopped TPU VM."""
        self._must([*self._tpu("start"), "--async", "--quiet"], f"starting the TPU {self.settings.tpu_name}")

    def tpu_delete(self, name=None, zone=None):
        """Deletes a TPU VM; one that is already gone is no failure."""
        self._remove(
            [*self._tpu("delete", name, zone), "--quiet"], f"deleting the TPU {name or self.settings.tpu_name}"
        )

    def tpu_list(self, labelled=True):
        """The TPU VMs of all zones as a list of dicts, those with this project's label or all."""
        argv = ["gcloud", "compute", "tpus", "tpu-vm", "list", *self._project()]
        if labelled:
            argv.append(f"--filter=labels.managed-by={MANAGED_BY}")
        name = (
            f"projects/my-project/locations/{self.settings.zone or 'ZONE'}/nodes/{self.settings.tpu_name or 'my-tpu'}"
        )
        assumed = [{"name": name, "labels": self.settings.labels, **_READY}]
        return self._of_all_zones(argv, "listing the TPUs", assumed if labelled else [])

    def queued_create(self):
        """Asks for the TPU VM through a queued resource of the same name; returns at once with a `shell.Result`."""
        argv = ["gcloud", "compute", "tpus", "queued-resources", "create", self.settings.tpu_name]
        argv += [f"--node-id={self.settings.tpu_name}", *self._where(), *self._machine("--runtime-version")]
        # A request that nobody remembers should not begin to cost some day.
        argv += ["--valid-until-duration=1d", "--async"]
        return self.shell.run(argv, timeout=_QUERY_SECONDS)

    def queued_describe(self, assumed=_ACTIVE):
        """The queued resource of the TPU's name as the API describes it, or None."""
        argv = ["gcloud", "compute", "tpus", "queued-resources", "describe", self.settings.tpu_name, *self._where()]
        return self._describe(argv, "looking at the queued resource", assumed)

    def queued_delete(self, name=None, zone=None):
        """Deletes a queued resource together with its TPU VM; one that is already gone is no failure."""
        name = name or self.settings.tpu_name
        argv = [
            "gcloud",
            "compute",
            "tpus",
            "queued-resources",
            "delete",
            name,
            *self._where(zone),
            "--force",
            "--quiet",
        ]
        self._remove(argv, f"deleting the queued resource {name}")

    def queued_list(self):
        """The queued resources of all zones whose TPU VM carries this project's label, as a list of dicts."""
        argv = ["gcloud", "compute", "tpus", "queued-resources", "list", *self._project()]
        argv.append(f"--filter=tpu.nodeSpec.node.labels.managed-by:{MANAGED_BY}")
        return self._of_all_zones(argv, "listing the queued resources", [])

    def tpu_locations(self):
        """The zones that have TPUs for this project."""
        argv = ["gcloud", "compute", "tpus", "locations", "list", *self._project()]
        return [zone["locationId"] for zone in self._json(argv, "listing the zones of TPUs", [])]

    def accelerator_types(self):
        """The accelerator types that the zone offers, as names."""
        argv = ["gcloud", "compute", "tpus", "accelerator-types", "list", *self._where()]
        rows = self._json(argv, "listing the TPU types of the zone", [{"type": self.settings.tpu_type.name}])
        return [row.get("type") or row["name"].rpartition("/")[2] for row in rows]

    def images(self):
        """The images that the zone offers for TPU VMs, as names."""
        argv = ["gcloud", "compute", "tpus", "tpu-vm", "versions", "list", *self._where()]
        rows = self._json(argv, "listing the TPU images of the zone", [{"version": self.settings.image}])
        return [row.get("version") or row["name"].rpartition("/")[2] for row in rows]

    # Compute Engine VMs.

    def instance_describe(self, name=None, zone=None, assumed=_RUNNING):
        """A Compute Engine VM as the API describes it, or None."""
        name = name or self.settings.control_vm
        argv = ["gcloud", "compute", "instances", "describe", name, *self._where(zone)]
        return self._describe(argv, f"looking at the VM {name}", assumed)

    def instance_list(self):
        """The Compute Engine VMs of all zones that carry this project's label, as a list of dicts."""
        argv = ["gcloud", "compute", "instances", "list", *self._project()]
        argv.append(f"--filter=labels.managed-by={MANAGED_BY}")
        return self._json(argv, "listing the VMs", [])

    def instance_create(self):
        """Makes CONTROL_VM and waits until it runs."""
        settings = self.settings
        image_project, _, family = settings.control_image.partition("/")
        argv = ["gcloud", "compute", "instances", "create", settings.control_vm, *self._where()]
        argv += [f"--machine-type={settings.machine_type}", f"--image-project={image_project}"]
        argv += [f"--image-family={family}", f"--boot-disk-size={_DISK}", self._labels(), "--scopes=cloud-platform"]
        # Debian's Python comes without what makes virtual environments.
        argv += ["--metadata=startup-script=command -v apt-get && apt-get update && apt-get install -y python3-venv"]
        if settings.accelerator:
            kind, _, count = settings.accelerator.partition(":")
            # Machines with GPUs cannot be moved while they run.
            argv += [f"--accelerator=type={kind},count={count or 1}", "--maintenance-policy=TERMINATE"]
        argv += self._identity()
        self._must([*argv, "--quiet"], f"making the VM {settings.control_vm}")

    def instance_start(self):
        """Starts CONTROL_VM, which stood still or was preempted, and waits until it runs."""
        argv = ["gcloud", "compute", "instances", "start", self.settings.control_vm, *self._where(), "--quiet"]
        self._must(argv, f"starting the VM {self.settings.control_vm}")

    def instance_stop(self):
        """Stops CONTROL_VM; its disk stays."""
        argv = ["gcloud", "compute", "instances", "stop", self.settings.control_vm, *self._where(), "--quiet"]
        self._must(argv, f"stopping the VM {self.settings.control_vm}")

    def instance_delete(self, name, zone):
        """Deletes a Compute Engine VM with its disks; one that is already gone is no failure."""
        argv = ["gcloud", "compute", "instances", "delete", name, *self._where(zone), "--quiet"]
        self._remove(argv, f"deleting the VM {name}")

    # The machine that runs the program: command lines, which `vm` runs.

    def ssh(self, command=None, worker="0"):
        """The command line that runs a command on the machine that runs the program.

        gcloud runs the command again, up to ten times, whenever ssh ends with 255.

        Args:
          command: text for the shell of that machine; None: an interactive session.
          worker: of a pod slice: a number, or `all`.
        """
        argv = [*self._machine_verb("ssh"), self.settings.vm, *self._where()]
        argv += [] if self.settings.control_vm else [f"--worker={worker}"]
        argv += [f"--ssh-flag={flag}" for flag in _SSH_FLAGS] + ["--quiet"]
        return argv if command is None else [*argv, f"--command={command}"]

    def ssh_tunnel(self, here, there, command):
        """The command line that runs a command on that machine and makes its port `there` the port `here` of this one.

        The command has a terminal: it ends with the connection.
        """
        return [*self.ssh(command), f"--ssh-flag=-L {here}:localhost:{there}", "--ssh-flag=-tt"]

    # Storage.

    def bucket_describe(self, assumed=_BUCKET):
        """The bucket as gcloud describes it (`location`, `labels`, ...), or None."""
        argv = ["gcloud", "storage", "buckets", "describe", self.settings.bucket, *self._project()]
        return self._describe(argv, f"looking at {self.settings.bucket}", assumed)

    def bucket_create(self):
        """Makes the bucket in the TPU's region: private, without a bin that costs, and with this project's labels."""
        bucket = self.settings.bucket
        argv = ["gcloud", "storage", "buckets", "create", bucket, f"--location={self.region}", *self._project()]
        argv += ["--uniform-bucket-level-access", "--public-access-prevention", "--soft-delete-duration=0"]
        self._must(argv, f"making {bucket}")
        # The labels cannot be given to the command above.
        labels = ",".join(f"{key}={value}" for key, value in self.settings.labels.items() if key != "run")
        argv = ["gcloud", "storage", "buckets", "update", bucket, f"--update-labels={labels}", *self._project()]
        self._must(argv, f"labelling {bucket}")

    def bucket_delete(self):
        """Deletes the bucket with all that is in it."""
        self.storage_delete_folder(self.settings.bucket)
        verb = ["gcloud", "storage", "buckets", "delete"] if _gcloud_storage() else ["gsutil", "rb"]
        self._remove([*verb, self.settings.bucket], f"deleting {self.settings.bucket}")

    def storage_sync(self, source, target, exclude, recursive):
        """Copies what is new or changed from a folder here to one of the bucket; nothing is deleted there.

        Args:
          source: folder here; symbolic links in it are left out.
          target: folder of the bucket.
          exclude: regular expression of paths in the folder that stay, matched from their start.
          recursive: whether folders in it are copied too.
        """
        if _gcloud_storage():
            argv = ["gcloud", "storage", "rsync", "--checksums-only", f"--exclude={exclude}"]
            argv += ["--recursive"] if recursive else []
        else:
            argv = ["gsutil", "-m", "rsync", "-c", "-x", exclude] + (["-r"] if recursive else [])
        self._must([*argv, source, target], f"copying {source} to {target}", timeout=None)

    def storage_upload(self, path, url):
        """Copies a file to the bucket."""
        self._must([*_storage("cp"), path, url], f"copying to {url}", timeout=None)

    def storage_cat(self, url, start=0):
        """An object's content from a byte on as text, or None if there is no such object."""
        span = [f"--range={start}-"] if _gcloud_storage() else ["-r", f"{start}-"]
        result = self._retried([*_storage("cat"), *(span if start else []), url])
        if result.ok:
            return result.stdout
        if classify(result.stderr) == "not_found":
            return None
        raise failure(f"reading {url}", result.stderr)

    def storage_write(self, url, content, generation=None):
        """Writes a text to an object.

        Args:
          url: gs://bucket/name.
          content: text.
          generation: write only if this is the object's generation; 0: only if there is no object.

        Returns:
          The generation of the new object; None if the condition does not hold.
        """
        if _gcloud_storage():
            condition = [] if generation is None else [f"--if-generation-match={generation}"]
            argv = ["gcloud", "storage", "cp", *condition, "--print-created-message", "-", url]
        else:
            condition = [] if generation is None else ["-h", f"x-goog-if-generation-match:{generation}"]
            argv = ["gsutil", *condition, "cp", "-v", "-", url]
        result = self.shell.run(argv, timeout=_QUERY_SECONDS, stdin=content)
        if result.ok:
            created = re.search(rf"Created: {re.escape(url)}#(\d+)", result.stdout + result.stderr)
            return created[1] if created else ""
        if generation is not None and classify(result.stderr) == "precondition":
            return None
        raise failure(f"writing {url}", result.stderr)

    def storage_describe(self, url):
        """An object as gcloud describes it (`generation`, `update_time`, ...), or None."""
        return self._describe(["gcloud", "storage", "objects", "describe", url], f"looking at {url}", None)

    def storage_list(self, url):
        """The objects and folders that a pattern or folder names, as URLs; empty if there are none."""
        result = self._retried([*_storage("ls"), url])
        if result.ok:
            return result.stdout.splitlines()
        if classify(result.stderr) == "not_found":
            return []
        raise failure(f"listing {url}", result.stderr)

    def storage_delete(self, url, generation=None):
        """Deletes an object; one that is already gone, or of another generation than the given one, is no failure."""
        condition = [f"--if-generation-match={generation}"] if generation and _gcloud_storage() else []
        result = self._retried([*_storage("rm"), *condition, url])
        if not result.ok and classify(result.stderr) not in ("not_found", "precondition"):
            raise failure(f"deleting {url}", result.stderr)

    def storage_delete_folder(self, url):
        """Deletes all objects under a folder, or in a bucket."""
        self._remove([*_storage("rm"), f"{url}/**"], f"deleting {url}")

    # Vertex AI, and the images that its jobs run in.

    @property
    def images_repository(self):
        """Address of the repository of Artifact Registry that has the images."""
        return f"{self.region}-docker.pkg.dev/{self.project.replace(':', '/')}/{MANAGED_BY}"

    def image_tags(self):
        """The tags of the images called bert that are in the repository; empty if it does not exist."""
        argv = ["gcloud", "artifacts", "tags", "list", "--package=bert", f"--repository={MANAGED_BY}"]
        try:
            rows = self._json([*argv, f"--location={self.region}", *self._project()], "listing the images", [])
        except CloudError as e:
            if e.kind == "not_found":
                return []
            raise
        return [row["name"].rpartition("/")[2] for row in rows]

    def images_repository_create(self):
        """Makes the repository of the images; one that is there is no failure."""
        argv = ["gcloud", "artifacts", "repositories", "create", MANAGED_BY, f"--location={self.region}"]
        argv += ["--repository-format=docker", f"--labels=managed-by={MANAGED_BY}", *self._project(), "--quiet"]
        result = self.shell.run(argv, timeout=_QUERY_SECONDS)
        if not result.ok and classify(result.stderr) != "exists":
            raise failure("making the repository of the images", result.stderr)

    def image_build(self, image, base):
        """The command line that builds an image of this project in the cloud and follows that.

        Args:
          image: its address, with a tag.
          base: the image that it is made from.
        """
        # Sources and logs go to the run's folder instead of to buckets that Cloud Build would make for them.
        folder = f"{self.settings.prefix}/image"
        argv = ["gcloud", "builds", "submit", ".", "--config=scripts/vertex/cloudbuild.yaml"]
        argv += ["--ignore-file=scripts/vertex/gcloudignore", f"--substitutions=_IMAGE={image},_BASE={base}"]
        argv += [f"--gcs-source-staging-dir={folder}", f"--gcs-log-dir={folder}", *self._project(), "--quiet"]
        return argv

    def custom_job_create(self, path, labels=()):
        """Submits a custom job and returns its full name.

        Args:
          path: file with the specification of the job.
          labels: dict of labels beside this project's.
        """
        settings = self.settings
        argv = ["gcloud", "ai", "custom-jobs", "create", f"--region={self.region}", *self._project()]
        argv += [f"--display-name={settings.run}", f"--config={path}", self._labels(labels)]
        argv += [f"--service-account={settings.service_account}"] if settings.service_account else []
        argv += [f"--network={settings.network}"] if settings.network else []
        assumed = f"projects/{settings.project or 'my-project'}/locations/{self.region}/customJobs/JOB"
        argv += ["--format=value(name)", "--quiet"]
        result = self.shell.run(argv, timeout=_QUERY_SECONDS, assumed=assumed)
        if not result.ok:
            raise failure("submitting the job", result.stderr)
        return result.stdout.strip()

    def custom_jobs(self):
        """The custom jobs of the region that carry this project's label, as a list of dicts."""
        argv = ["gcloud", "ai", "custom-jobs", "list", f"--region={self.region}", *self._project()]
        return self._json([*argv, f"--filter=labels.managed-by={MANAGED_BY}"], "listing the jobs of Vertex AI", [])

    def custom_job_describe(self, name):
        """A custom job as the API describes it, or None.

        Args:
          name: its full name.
        """
        argv = ["gcloud", "ai", "custom-jobs", "describe", name, *self._project()]
        return self._describe(argv, "looking at the job", {"state": "JOB_STATE_SUCCEEDED"})

    def custom_job_log(self, name, since=""):
        """The log of a custom job as the API has it: a list of dicts, the oldest entry first.

        `gcloud ai custom-jobs stream-logs` is of no use: it asks only once, at its start, whether the job has ended.

        Args:
          name: its full name.
          since: time of the first entry that is wanted, as the API writes it; empty: from the beginning.
        """
        conditions = ['resource.type="ml_job"', f'resource.labels.job_id="{name.rpartition("/")[2]}"']
        conditions += [f'timestamp>="{since}"'] if since else []
        argv = ["gcloud", "logging", "read", " AND ".join(conditions), "--order=asc", *self._project()]
        return self._json(argv, "reading the log of the job", [])

    def custom_job_cancel(self, name):
        """The command line that ends a custom job."""
        return ["gcloud", "ai", "custom-jobs", "cancel", name, *self._project()]

    def custom_job_end(self, name):
        """Ends a custom job; one that is already gone is no failure."""
        self._remove([*self.custom_job_cancel(name), "--quiet"], f"ending the job {name}")

    # The project.

    def services(self, assumed=()):
        """The names of the enabled services, as in tpu.googleapis.com."""
        argv = ["gcloud", "services", "list", "--enabled", *self._project()]
        rows = self._json(argv, "listing the enabled services", [{"config": {"name": name}} for name in assumed])
        return [row["config"]["name"] for row in rows]

    # How.

    def _machine(self, image_flag):
        """What kind of TPU VM to make."""
        settings = self.settings
        argv = [f"--accelerator-type={settings.tpu_type.name}", f"{image_flag}={settings.image}", self._labels()]
        argv += [] if settings.on_demand else ["--spot"]
        return [*argv, *self._identity(), "--scopes=cloud-platform", "--quiet"]

    def _identity(self):
        """Which account and network a machine gets, if not the defaults."""
        names = ("service_account", "network", "subnetwork")
        given = ((name.replace("_", "-"), getattr(self.settings, name)) for name in names)
        return [f"--{flag}={value}" for flag, value in given if value]

    def _labels(self, more=()):
        labels = {**dict(more), **self.settings.labels}
        return "--labels=" + ",".join(f"{key}={value}" for key, value in labels.items())

    def _machine_verb(self, verb):
        return (
            ["gcloud", "compute", verb] if self.settings.control_vm else ["gcloud", "compute", "tpus", "tpu-vm", verb]
        )

    def _tpu(self, verb, name=None, zone=None):
        return ["gcloud", "compute", "tpus", "tpu-vm", verb, name or self.settings.tpu_name, *self._where(zone)]

    def _where(self, zone=None):
        return [f"--zone={zone or self.zone}", *self._project()]

    def _project(self):
        return [f"--project={self.settings.project}"] if self.settings.project else []

    def _retried(self, argv, assumed="", timeout=_QUERY_SECONDS):
        """Runs a query, again if the failure is a passing one."""
        for pause in (*_PAUSES, None):
            result = self.shell.run(argv, timeout=timeout, assumed=assumed)
            if result.ok or pause is None or classify(result.stderr) not in PASSING:
                return result
            self.shell.sleep(pause)
        return result

    def _json(self, argv, what, assumed):
        result = self._retried([*argv, "--format=json"], assumed=json.dumps(assumed))
        if not result.ok:
            raise failure(what, result.stderr)
        return json.loads(result.stdout or "null") or []

    def _of_all_zones(self, argv, what, assumed):
        """What a list of TPU resources has in all zones, asked at once or, where that is refused, one by one."""
        try:
            return self._json([*argv, "--zone=-"], what, assumed)
        except CloudError as e:
            if e.kind not in ("zone", "not_found", "other"):
                raise
        found = []
        for zone in self.tpu_locations():
            found += self._json([*argv, f"--zone={zone}"], what, [])
        return found

    def _describe(self, argv, what, assumed):
        try:
            return self._json(argv, what, assumed) or None
        except CloudError as e:
            if e.kind == "not_found":
                return None
            raise

    def _must(self, argv, what, timeout=_CHANGE_SECONDS):
        result = self.shell.run(argv, timeout=timeout)
        if not result.ok:
            raise failure(what, result.stderr)

    def _remove(self, argv, what):
        result = self._retried(argv, timeout=_CHANGE_SECONDS)
        if not result.ok and classify(result.stderr) != "not_found":
            raise failure(what, result.stderr)


def _gcloud_storage():
    """Whether gcloud is there to handle storage; older installations have gsutil alone."""
    return shutil.which("gcloud") is not None or shutil.which("gsutil") is None


def _storage(verb):
    return ["gcloud", "storage", verb] if _gcloud_storage() else ["gsutil", verb]


def quoted(argv):
    """A list of words as text for the shell of another machine: the one place where that is done."""
    return shlex.join(argv)
