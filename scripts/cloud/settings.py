"""The variables of the Makefile as the verbs of the cloud use them, each checked before anything is done with it."""

import dataclasses
import getpass
import re

from scripts.cloud import tpu_types
from scripts.cloud.errors import UsageError

MANAGED_BY = "bert-on-tpu"
# Variables that the program reads on the machine where it runs: passed on as they were given.
PROGRAM_VARIABLES = (
    *("CORPUS", "EVAL_CORPUS", "VOCAB", "VOCAB_SIZE", "CONFIG", "RECIPE", "INIT", "TASK", "DATA_DIR"),
    *("STEPS", "EPOCHS", "BATCH", "SEQ", "LR", "SEED", "ARGS"),
)


def is_remote(environment):
    """Whether the variables name a machine elsewhere to run the program on."""
    tpu_name = environment.get("TPU_NAME", "")
    return bool(environment.get("CONTROL_VM")) or bool(tpu_name and tpu_name != "local" and "://" not in tpu_name)


@dataclasses.dataclass(frozen=True)
class Settings:
    """What the verbs are to work on. An empty text is a variable that was not given.

    Attributes:
      verb: the verb that was asked for.
      tpu_name: name of a TPU VM, `local`, or a `grpc://` address that only the program needs.
      control_vm: name of a Compute Engine VM that runs the program; empty: worker 0 of the TPU does.
      machine_type, accelerator, control_image: of a control_vm that has to be made; the second is a GPU, or empty.
      zone: as in us-central1-b; empty: as gcloud is configured.
      project: id of the project; empty: as gcloud is configured.
      bucket: gs://name without a slash at the end.
      tpu_type: a `tpu_types.TpuType`.
      image: name of the TPU VM's image.
      run: name of the run: its folder in the bucket.
      out: folder of the run's output, in the bucket unless it was given.
      program: the variables of `PROGRAM_VARIABLES` that were given, by name.
      owner: who made a resource, as a label.
      service_account: e-mail address of the account that the TPU VM acts as; empty: the project's default one.
      network, subnetwork: of the TPU VM; empty: default.
      container: address of a container image for Vertex AI, instead of one that is made of this project.
      job_file: file with the specification of a job of Vertex AI, instead of one that follows from the variables.
      price_per_hour: dollars an hour of the TPU, or None for the list price.
      max_hours, max_cost: when to stop everything; None: never.
      hang_minutes: how long a run may make no step.
      watch_seconds: how often `watch` looks.
      on_demand: whether to ask for a TPU that is not preempted.
      queued: whether to ask through a queued resource.
      compile: whether `preflight` compiles the training for the TPU, on this machine.
      dry_run, yes, delete_data, allow_cross_region: as the variables of these names.
    """

    verb: str
    tpu_name: str
    control_vm: str
    machine_type: str
    accelerator: str
    control_image: str
    zone: str
    project: str
    bucket: str
    tpu_type: tpu_types.TpuType
    image: str
    run: str
    out: str
    program: dict
    owner: str
    service_account: str
    network: str
    subnetwork: str
    container: str
    job_file: str
    price_per_hour: object
    max_hours: object
    max_cost: object
    hang_minutes: float
    watch_seconds: float
    on_demand: bool
    queued: bool
    dry_run: bool
    yes: bool
    delete_data: bool
    compile: bool
    allow_cross_region: bool

    @classmethod
    def from_environment(cls, environment, verb):
        """Reads and checks the variables.

        Args:
          environment: dict such as os.environ.
          verb: the verb that was asked for; `finetune` and the like name their run after the task.

        Raises:
          UsageError: a value cannot be used.
        """

        def text(name, pattern="", allowed="", default=""):
            value = environment.get(name, "") or default
            if value and pattern and not re.fullmatch(pattern, value):
                raise UsageError(f"{name}={value!r} cannot be used: {allowed}.")
            return value

        def number(name, default=None):
            value = environment.get(name, "")
            if not value:
                return default
            if not re.fullmatch(r"\d+(\.\d*)?|\.\d+", value) or float(value) == 0:
                raise UsageError(f"{name}={value!r} cannot be used: it is a number above zero.")
            return float(value)

        def switch(name):
            value = environment.get(name, "")
            if value not in ("", "0", "1"):
                raise UsageError(f"{name}={value!r} cannot be used: it is 1, or 0 or nothing.")
            return value == "1"

        name = r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?"
        name_allowed = "a name has up to 63 small letters, digits and hyphens, and begins with a letter"
        tpu_name = text(
            "TPU_NAME", rf"local|grpc://[^\s]+|{name}", f"{name_allowed}; or it is local, or grpc://address"
        )
        task = environment.get("TASK", "")
        run = environment.get("RUN", "")
        if run in ("", "pretrain"):
            # The Makefile calls a run "pretrain" unless it is told otherwise; fine-tuning is called after its task.
            run = task.lower() if task and verb not in ("pretrain", "eval") else "pretrain"
        if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}", run):
            raise UsageError(
                f"RUN={run!r} cannot be used: a run in the cloud is a folder of the bucket and a label; its name has "
                "up to 63 letters, digits, dots, hyphens and underscores."
            )
        bucket = text(
            "BUCKET", r"gs://[a-z0-9][a-z0-9._-]{1,61}[a-z0-9]/?", "it is gs://name, without a folder"
        ).rstrip("/")
        tpu_type = tpu_types.parse(environment.get("TPU_TYPE") or "v3-8")
        image = environment.get("IMAGE") or tpu_type.image
        tpu_types.check_image(image, tpu_type)
        settings = cls(
            verb=verb,
            tpu_name=tpu_name,
            control_vm=text("CONTROL_VM", name, name_allowed),
            machine_type=text(
                "MACHINE_TYPE", r"[a-z0-9]+(-[a-z0-9]+)+", "it is a type such as n1-standard-8", "e2-standard-4"
            ),
            accelerator=text(
                "ACCELERATOR", r"[a-z0-9-]+(:[1-9]\d?)?", "it is a GPU and a number, such as nvidia-tesla-t4:2"
            ),
            control_image=text(
                "CONTROL_IMAGE",
                r"[a-z0-9.:-]+/[a-z0-9.-]+",
                "it is project/family of an image",
                "debian-cloud/debian-12",
            ),
            zone=text("ZONE", r"[a-z]+-[a-z]+\d+-[a-z]", "a zone is one such as us-central1-b, not a region"),
            project=text(
                "PROJECT",
                r"([a-z0-9.-]+:)?[a-z][a-z0-9-]{4,28}[a-z0-9]",
                "it is the id of a project, as in my-project-1",
            ),
            bucket=bucket,
            tpu_type=tpu_type,
            image=image,
            run=run,
            out=environment.get("OUT") or (f"{bucket}/{run}/out" if bucket else ""),
            program={n: environment[n] for n in PROGRAM_VARIABLES if environment.get(n)},
            owner=label(_user(environment)),
            service_account=text(
                "SERVICE_ACCOUNT", r"[a-z0-9-]+@[a-z0-9.-]+", "it is the e-mail address of a service account"
            ),
            network=text("NETWORK", r"[a-z0-9/:._-]+", "it is the name of a network"),
            subnetwork=text("SUBNETWORK", r"[a-z0-9/:._-]+", "it is the name of a subnetwork"),
            container=text(
                "CONTAINER", r"[a-z0-9][a-z0-9./:@_-]+", "it is the address of a container image, host/path/name:tag"
            ),
            job_file=text("JOB"),
            price_per_hour=number("PRICE_PER_HOUR"),
            max_hours=number("MAX_HOURS"),
            max_cost=number("MAX_COST"),
            hang_minutes=number("HANG_MINUTES", 30.0),
            watch_seconds=number("WATCH_SECONDS", 60.0),
            on_demand=switch("ON_DEMAND"),
            queued=switch("QUEUED"),
            dry_run=switch("DRY_RUN"),
            yes=switch("YES"),
            delete_data=switch("DELETE_DATA"),
            compile=switch("COMPILE"),
            allow_cross_region=switch("ALLOW_CROSS_REGION"),
        )
        if settings.control_vm and settings.has_tpu_vm:
            raise UsageError(
                f"CONTROL_VM={settings.control_vm} cannot drive the TPU VM {tpu_name}: a TPU VM runs the program "
                "itself, on its worker 0. Leave CONTROL_VM out, or give TPU_NAME=grpc://address."
            )
        return settings

    @property
    def has_tpu_vm(self):
        """Whether TPU_NAME names a TPU VM, rather than this machine or an address."""
        return bool(self.tpu_name) and self.tpu_name != "local" and "://" not in self.tpu_name

    @property
    def vm(self):
        """Name of the machine that runs the program."""
        return self.control_vm or self.tpu_name

    @property
    def prefix(self):
        """The run's folder in the bucket."""
        return f"{self.bucket}/{self.run}"

    @property
    def job(self):
        """The folder in the bucket that mirrors the job: its log, run.json and status.json."""
        return f"{self.prefix}/job"

    @property
    def labels(self):
        """What everything that is made carries, as a dict."""
        return {"managed-by": MANAGED_BY, "run": label(self.run), "owner": self.owner}

    def need(self, *names):
        """Refuses to go on without some variables.

        Args:
          *names: `VM` (TPU_NAME or CONTROL_VM), `TPU_NAME` (of a TPU VM) or `BUCKET`.

        Raises:
          UsageError: names the first that is missing and shows how to give it.
        """
        for name in names:
            if name == "VM" and not (self.has_tpu_vm or self.control_vm):
                raise UsageError(
                    f"make {self.verb} needs TPU_NAME=name, the TPU VM to work on, or CONTROL_VM=name, a VM of Compute "
                    "Engine."
                )
            if name == "TPU_NAME" and not self.has_tpu_vm:
                raise UsageError(f"make {self.verb} needs TPU_NAME=name, the TPU VM to work on: a name of your choice.")
            if name == "BUCKET" and not self.bucket:
                raise UsageError(f"make {self.verb} needs BUCKET=gs://name, the bucket for code, data and checkpoints.")

    def command(self, verb, **more):
        """The command line of a verb with the variables that say where, for messages.

        Args:
          verb: as in `logs`.
          **more: further variables with their values.
        """
        given = {"TPU_NAME": self.tpu_name, "CONTROL_VM": self.control_vm, "ZONE": self.zone, "PROJECT": self.project}
        given["BUCKET"] = self.bucket
        if self.tpu_type.name != "v3-8" and verb in ("cloud-up", "watch", "preflight"):
            given["TPU_TYPE"] = self.tpu_type.name
        if self.control_vm and verb == "cloud-up":
            given["MACHINE_TYPE"] = self.machine_type
        if self.run != "pretrain":
            given["RUN"] = self.run
        given.update(more)
        return " ".join(["make", verb, *(f"{name}={value}" for name, value in given.items() if value)])


def label(text):
    """A text as the value of a label: small letters, digits, hyphens and underscores, at most 63."""
    return re.sub(r"[^a-z0-9_-]", "-", text.lower())[:63]


def _user(environment):
    try:
        return environment.get("USER") or environment.get("LOGNAME") or getpass.getuser()
    except (KeyError, OSError):  # a user without a name
        return "unknown"
