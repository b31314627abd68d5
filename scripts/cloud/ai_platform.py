"""Reads the configuration of a training job of AI Platform, which was shut down on 2025-01-31, as one of Vertex AI.

    trainingInput:
      scaleTier: CUSTOM
      masterType: n1-highcpu-16
      workerType: cloud_tpu
      workerCount: 1
      workerConfig:
        acceleratorConfig: {type: TPU_V3, count: 8}

There, a master looked on while a TPU node elsewhere computed; on Vertex AI the program runs on the machine that has the
TPU. What AI Platform refused is refused with the line of the file. Needs PyYAML, which tells the lines. Fields:
TrainingInput of the AI Platform Training and Prediction API, v1.
"""

import dataclasses
import re

import yaml

from scripts.cloud.errors import UsageError

_CORES = {
    "TPU_V2": (8,),
    "TPU_V3": (8,),
    "TPU_V2_POD": (32, 128, 256, 512),
    "TPU_V3_POD": (32, 128, 256, 512, 1024, 2048),
}
# What the service itself wrote about a job, as `describe` showed it.
_OUTPUT = ("createTime", "startTime", "endTime", "state", "etag", "errorMessage", "trainingOutput", "jobPosition")
_PLACES = ("master", "worker", "parameterServer", "evaluator")
_OTHERS = (
    *("scaleTier", "packageUris", "pythonModule", "args", "region", "jobDir", "runtimeVersion", "pythonVersion"),
    *("scheduling", "network", "serviceAccount", "enableWebAccess", "useChiefInTfConfig", "hyperparameters"),
    "encryptionConfig",
)
_ACCELERATOR = ("type", "count")
_REPLICA = ("acceleratorConfig", "imageUri", "tpuTfVersion", "containerCommand", "containerArgs", "diskConfig")


@dataclasses.dataclass(frozen=True)
class Job:
    """What a configuration asks for.

    Attributes:
      name: its jobId; empty if it has none.
      labels: dict.
      region: empty if it has none.
      generation: of the TPU: `v2` or `v3`.
      cores: 8, or the size of a pod slice.
      image: address of its own image; empty if it has none.
      command: list of words that replaces the image's entry point; empty: none.
      module: name of a Python module to run, if it has no image; empty otherwise.
      module_line: file and line that name it.
      arguments: list of words for the image or the module.
      job_dir: a gs:// folder; empty if it has none.
      more: further fields of a CustomJobSpec, as a dict.
      notes: what falls away and why, a line each.
    """

    name: str
    labels: dict
    region: str
    generation: str
    cores: int
    image: str
    command: list
    module: str
    module_line: str
    arguments: list
    job_dir: str
    more: dict
    notes: list

    @property
    def is_pod(self):
        """Whether several hosts drive the TPU."""
        return self.cores > 8


def read(path):
    """Reads a file.

    Returns:
      A `Job`, or None if it is no configuration of AI Platform.

    Raises:
      UsageError: it cannot be read, or asks for what AI Platform refused or Vertex AI does not have.
    """
    try:
        with open(path, encoding="utf-8") as f:
            root = yaml.compose(f, Loader=yaml.SafeLoader)
    except (OSError, UnicodeDecodeError) as e:
        raise UsageError(f"JOB={path} cannot be read: {e}") from None
    except yaml.YAMLError as e:
        mark = getattr(e, "problem_mark", None)
        raise UsageError(
            f"{path}:{mark.line + 1 if mark else 1}: this is not YAML: {getattr(e, 'problem', e)}"
        ) from None
    if not isinstance(root, yaml.MappingNode):
        raise UsageError(f"{path}: this is no job: it has no fields.")
    job = _Mapping(path, root)
    if "trainingInput" not in job:
        return None
    return _convert(job)


def _convert(job):
    job.allow("jobId", "labels", "trainingInput", *_OUTPUT)
    given = job.mapping("trainingInput")
    given.allow(*_OTHERS, *(f"{place}{what}" for place in _PLACES for what in ("Type", "Count", "Config")))
    notes = []

    def drop(fields, name, why):
        if name in fields:
            notes.append(f"{fields.where(name)}: {name} falls away: {why}")

    for place in _PLACES[2:]:
        for what in ("Type", "Count", "Config"):
            if f"{place}{what}" in given and given.get(f"{place}{what}") != 0:
                given.refuse(f"{place}{what}", "a job with a TPU has neither parameter servers nor evaluators")
    for name, why in (
        ("hyperparameters", "tuning is another kind of job of Vertex AI: submit its trials one by one"),
        ("encryptionConfig", "a key of yours is not part of the file there: gcloud ai custom-jobs create --kms-key"),
    ):
        if name in given:
            given.refuse(name, why)

    replica = _tpu(given, drop)
    accelerator = replica.mapping("acceleratorConfig") if replica else None
    kind, cores = _accelerator(accelerator) if accelerator else ("TPU_V2", 8)
    if replica:
        drop(replica, "tpuTfVersion", "the image has the TensorFlow, 2.15 in that of this project")
        if not re.fullmatch(r"\d+\.\d+|", replica.text("tpuTfVersion")):
            replica.refuse("tpuTfVersion", "it is a version such as 1.15")

    master = given.mapping("masterConfig") or _Mapping(job.path)
    master.allow(*_REPLICA)
    drop(master, "acceleratorConfig", "the machine is the TPU's")
    with_image = next((fields for fields in (master, replica) if fields and "imageUri" in fields), _Mapping(job.path))
    image, module = with_image.text("imageUri"), given.text("pythonModule")
    if image:
        for name in ("pythonModule", "packageUris", "runtimeVersion", "pythonVersion"):
            if name in given:
                given.refuse(name, "a job with an image of its own (imageUri) has no packages and no runtime version")
        notes.append(f"{with_image.where('imageUri')}: the image must have a TensorFlow 2.11 or later for TPU VMs")
    elif not module:
        raise UsageError(f"{given.where()}: there is nothing to run: neither pythonModule nor masterConfig.imageUri.")
    else:
        for name in ("runtimeVersion", "pythonVersion"):
            drop(given, name, "the program runs on TensorFlow 2.15 and Python 3.10")
        drop(given, "packageUris", "the program is that of this project")
    drop(given, "useChiefInTfConfig", "there is one machine")
    return Job(
        name=job.text("jobId"),
        labels={name: job.mapping("labels").text(name) for name in job.mapping("labels") or ()},
        region=given.text("region"),
        generation=kind[4:6].lower(),
        cores=cores,
        image=image,
        command=with_image.texts("containerCommand"),
        module=module,
        module_line=given.where("pythonModule"),
        arguments=with_image.texts("containerArgs") or given.texts("args"),
        job_dir=given.text("jobDir"),
        more=_more(given, drop),
        notes=notes,
    )


def _tpu(given, drop):
    """The configuration of the replica that has the TPU, or None for the default one."""
    tier = given.text("scaleTier")
    if tier not in ("BASIC_TPU", "CUSTOM"):
        given.refuse("scaleTier", "those with a TPU are BASIC_TPU and CUSTOM")
    if tier == "BASIC_TPU":
        for place in _PLACES[:2]:
            for what in ("Type", "Count"):
                if f"{place}{what}" in given:
                    given.refuse(f"{place}{what}", "only scaleTier CUSTOM lets machines be chosen")
        return None
    if not given.text("masterType"):
        raise UsageError(f"{given.where('scaleTier')}: scaleTier CUSTOM needs masterType.")
    types = {place: given.text(f"{place}Type") for place in _PLACES[:2]}
    with_tpu = [place for place, kind in types.items() if kind == "cloud_tpu"]
    if not with_tpu:
        name = "workerType" if types["worker"] else "masterType"
        given.refuse(name, "it must be cloud_tpu; other machines are not for this program")
    if len(with_tpu) == 2:
        given.refuse("workerType", "masterType is cloud_tpu already, and a job has one TPU")
    (place,) = with_tpu
    if place == "worker":
        drop(given, "masterType", "the program runs on the machine that has the TPU")
        if given.get("workerCount") not in (1, "1"):
            given.refuse("workerCount", "a job has one TPU: workerCount must be 1")
    elif types["worker"] or given.get("workerCount") not in (None, 0):
        given.refuse("workerType" if types["worker"] else "workerCount", "a job whose master is a TPU has no workers")
    config = given.mapping(f"{place}Config")
    if config:
        config.allow(*_REPLICA)
        drop(config, "diskConfig", "the machine of a TPU has the disk that it has")
    return config


def _accelerator(config):
    config.allow(*_ACCELERATOR)
    kind = config.text("type")
    if kind not in _CORES:
        config.refuse("type", f"it must be one of {' '.join(_CORES)}")
    count = config.text("count")
    if not count.isdigit() or int(count) not in _CORES[kind]:
        config.refuse("count", f"{kind} has {', '.join(map(str, _CORES[kind]))}")
    return kind, int(count)


def _more(given, drop):
    more = {name: given.get(name) for name in ("network", "serviceAccount", "enableWebAccess") if name in given}
    scheduling = given.mapping("scheduling")
    if scheduling:
        scheduling.allow("maxRunningTime", "maxWaitTime", "priority")
        if "maxRunningTime" in scheduling:
            more["scheduling"] = {"timeout": scheduling.text("maxRunningTime")}
        for name in ("maxWaitTime", "priority"):
            drop(scheduling, name, "Vertex AI has nothing like it")
    return more


class _Mapping:
    """Fields of a file, each with its line."""

    def __init__(self, path, node=None):
        self.path = path
        self._line = node.start_mark.line + 1 if node else 1
        self._keys, self._values = {}, {}
        for key, value in node.value if node else ():
            if key.value in self._keys:
                raise UsageError(f"{path}:{key.start_mark.line + 1}: {key.value} is there twice.")
            self._keys[key.value], self._values[key.value] = key.start_mark.line + 1, value

    def __contains__(self, name):
        return name in self._keys

    def __iter__(self):
        return iter(self._keys)

    def where(self, name=None):
        """File and line of a field, or of the whole."""
        return f"{self.path}:{self._keys.get(name, self._line)}"

    def refuse(self, name, why):
        """Raises a UsageError about a field, or about its absence."""
        value = self.get(name)
        shown = "" if value is None or isinstance(value, (dict, list)) else f" {value}"
        raise UsageError(f"{self.where(name)}: {name}{shown}: {why}.")

    def allow(self, *names):
        """Refuses all other fields."""
        for name in self:
            if name not in names:
                raise UsageError(f"{self.where(name)}: {name} is not a field that AI Platform has here.")

    def get(self, name):
        """Value of a field, or None."""
        node = self._values.get(name)
        if node is None:
            return None
        loader = yaml.SafeLoader("")
        try:
            return loader.construct_object(node, deep=True)
        except yaml.YAMLError as e:
            raise UsageError(f"{self.where(name)}: {name}: {getattr(e, 'problem', e)}.") from None
        finally:
            loader.dispose()

    def text(self, name):
        """Value of a field as it is written; empty if there is none."""
        node = self._values.get(name)
        if node is None:
            return ""
        if not isinstance(node, yaml.ScalarNode):
            raise UsageError(f"{self.where(name)}: {name} must be a single value.")
        return node.value

    def texts(self, name):
        """Values of a list as they are written; empty if there is none."""
        node = self._values.get(name)
        if node is None:
            return []
        if not isinstance(node, yaml.SequenceNode) or not all(isinstance(word, yaml.ScalarNode) for word in node.value):
            raise UsageError(f"{self.where(name)}: {name} must be a list of single values.")
        return [word.value for word in node.value]

    def mapping(self, name):
        """The fields of a field, or None."""
        node = self._values.get(name)
        if node is None:
            return None
        if not isinstance(node, yaml.MappingNode):
            raise UsageError(f"{self.where(name)}: {name} must have fields of its own.")
        return _Mapping(self.path, node)
