"""make sync: code and data to the bucket, code onto the machine; only what changed, and nothing is ever deleted.

The code travels as one archive that is named after its content: what is there already is not sent again, and a job that
runs keeps the code it was started with. Data that a variable names by a local path go to the run's folder in the
bucket, and the program is given their place there.
"""

import glob
import gzip
import hashlib
import io
import os
import pathlib
import tarfile
import tempfile

from scripts.cloud import prompt
from scripts.cloud.errors import UsageError, failure, reason
from scripts.cloud.gcloud import quoted
from scripts.cloud.vm import VM

ROOT = pathlib.Path(__file__).resolve().parents[2]
# What the machine needs of this folder. Nothing else is ever sent: no .git, .venv, out, config.mk, no keys.
CODE = (
    *("bert/**/*.py", "bert/configs/**/*.json", "scripts/**/*.py", "scripts/**/*.sh", "data/kjv/*.txt"),
    *("Makefile", "requirements.txt"),
)
SAMPLE_CORPUS = ("data/kjv/train.txt", "data/kjv/held_out.txt")
_RECEIVE = ROOT / "scripts" / "vm" / "receive.sh"
_RECEIVE_SECONDS = 1800  # installing packages can take minutes


def main(settings, gcloud):
    """Copies code and data."""
    settings.need("VM", "BUCKET")
    places = send_data(settings, gcloud)
    set_up(settings, gcloud, send_code(settings, gcloud))
    for name, place in places.items():
        if place != settings.program.get(name):
            prompt.say(settings, f"{name} is in {place}")
    prompt.say(settings, f"{settings.vm} and {settings.prefix} are up to date.")


# Code.


def send_code(settings, gcloud):
    """Copies the code to the bucket.

    Returns:
      The hash that names it.
    """
    archive = pack(ROOT)
    name = hashlib.sha256(archive).hexdigest()[:16]
    url = code_url(settings, name)
    if settings.dry_run or not gcloud.storage_list(url):
        with tempfile.TemporaryDirectory() as folder:
            path = pathlib.Path(folder, f"{name}.tar.gz")
            path.write_bytes(archive)
            gcloud.storage_upload(str(path), url)
        prompt.say(settings, f"The code ({len(archive) / 1e6:.1f} MB) is in {url}")
    return name


def set_up(settings, gcloud, code):
    """Unpacks code of the bucket on the machine, and makes the environment that it needs.

    Args:
      settings: a `Settings`.
      gcloud: a `Gcloud`.
      code: the hash that names it.

    Raises:
      CloudError: the machine cannot be reached or set up.
    """
    url = code_url(settings, code)
    script = quoted(["bash", "-c", _RECEIVE.read_text(encoding="utf-8"), "receive", settings.run, code, url])
    result = VM(settings, gcloud).run(script, timeout=_RECEIVE_SECONDS)
    if not result.ok:
        if "No space left on device" in result.stderr:
            raise failure(f"setting up {settings.vm}", f"its disk is full ({reason(result.stderr)})")
        raise failure(f"setting up {settings.vm}", result.stderr)


def code_url(settings, code):
    """Place of a code in the bucket."""
    return f"{settings.prefix}/code/{code}.tar.gz"


def pack(root):
    """The code as a compressed archive, the same bytes for the same content."""
    content = io.BytesIO()
    paths = sorted({path for pattern in CODE for path in root.glob(pattern) if path.is_file()})
    with (
        gzip.GzipFile(fileobj=content, mode="wb", mtime=0) as zipped,
        tarfile.open(fileobj=zipped, mode="w", format=tarfile.PAX_FORMAT) as archive,
    ):
        for path in paths:
            member = tarfile.TarInfo(path.relative_to(root).as_posix())
            member.size = path.stat().st_size
            member.mode = 0o755 if os.access(path, os.X_OK) else 0o644
            with path.open("rb") as f:
                archive.addfile(member, f)
    return content.getvalue()


# Data.


def send_data(settings, gcloud):
    """Copies what variables name by local paths to the run's folder in the bucket.

    Returns:
      The program's variables, with the places in the bucket for local paths.

    Raises:
      UsageError: a path does not exist.
      CloudError: something cannot be copied.
    """
    files, places = plan(settings)
    if files:
        with tempfile.TemporaryDirectory() as folder:
            for name, source in files.items():
                link = pathlib.Path(folder, name)
                link.parent.mkdir(parents=True, exist_ok=True)
                link.symlink_to(source.resolve())
            target = f"{settings.prefix}/data"
            gcloud.storage_sync(folder, target, what=f"copying data to {target}")
    return places


def plan(settings):
    """Which local files go where in the bucket, and what the variables are then.

    Returns:
      A dict from names in the run's folder `data` to paths, and a dict of the program's variables.

    Raises:
      UsageError: a path does not exist.
    """
    variables = dict(settings.program)
    if settings.tpu_type.is_pod and settings.has_tpu_vm and not variables.get("TASK"):
        # The workers of a pod slice read the data, and have no code.
        variables.setdefault("CORPUS", SAMPLE_CORPUS[0])
        if variables["CORPUS"] == SAMPLE_CORPUS[0]:
            variables.setdefault("EVAL_CORPUS", SAMPLE_CORPUS[1])
    files = {}
    for name, find in (
        ("CORPUS", _patterns),
        ("EVAL_CORPUS", _patterns),
        ("VOCAB", _file),
        ("CONFIG", _file_or_name),
        ("RECIPE", _file_or_name),
        ("INIT", _checkpoint),
        ("DATA_DIR", _folder),
    ):
        value = variables.get(name, "")
        if value and not value.startswith("gs://"):
            variables[name] = find(name, value, files, f"{settings.prefix}/data")
    if variables.get("ARGS"):
        _check_arguments(variables["ARGS"])
    return files, variables


def _patterns(name, value, files, place):
    """Of files of text: patterns with commas between them."""
    patterns = []
    for i, pattern in enumerate(value.split(",")):
        if pattern.startswith("gs://"):
            patterns.append(pattern)
            continue
        path = os.path.expanduser(pattern)
        found = sorted(filter(os.path.isfile, glob.glob(path)))
        if not found:
            raise UsageError(f"{name}={pattern} does not exist.")
        # What the pattern says of folders stays, below the folder that it is sure of.
        sure = path
        while glob.has_magic(sure) or sure == path:
            sure = os.path.dirname(sure)
        folder = f"{name.lower()}/{i}"
        files.update({f"{folder}/{os.path.relpath(source, sure or '.')}": pathlib.Path(source) for source in found})
        patterns.append(f"{place}/{folder}/{os.path.relpath(path, sure or '.')}")
    return ",".join(patterns)


def _file(name, value, files, place):
    path = pathlib.Path(value).expanduser()
    if not path.is_file():
        raise UsageError(f"{name}={value} does not exist.")
    files[f"{name.lower()}/{path.name}"] = path
    return f"{place}/{name.lower()}/{path.name}"


def _file_or_name(name, value, files, place):
    """One of the names that come with the code stays a name."""
    if pathlib.Path(value).expanduser().is_file():
        return _file(name, value, files, place)
    if "/" in value or value.endswith(".json"):
        raise UsageError(f"{name}={value} does not exist.")
    return value


def _folder(name, value, files, place):
    """All the files of a folder but the hidden ones."""
    top = pathlib.Path(value).expanduser()
    if not top.is_dir():
        raise UsageError(f"{name}={value} is not a folder.")
    folder = f"{name.lower()}/{top.resolve().name}"
    for path in sorted(top.rglob("*")):
        inside = path.relative_to(top)
        if path.is_file() and not any(part.startswith(".") for part in inside.parts):
            files[f"{folder}/{inside.as_posix()}"] = path
    return f"{place}/{folder}"


def _checkpoint(name, value, files, place):
    """A folder, or the files whose names begin as a checkpoint is called, with what describes them."""
    path = pathlib.Path(value).expanduser()
    if path.is_dir():
        return _folder(name, value, files, place)
    found = sorted(path.parent.glob(f"{glob.escape(path.name)}.*"))
    if path.is_file():
        found.append(path)
    if not found:
        raise UsageError(f"{name}={value} does not exist: it is a folder, or a checkpoint such as bert_model.ckpt.")
    described = [path.parent / other for other in ("bert_config.json", "vocab.txt")]
    folder = f"{name.lower()}/{path.parent.resolve().name}"
    for source in [*found, *(other for other in described if other.is_file())]:
        files[f"{folder}/{source.name}"] = source
    return f"{place}/{folder}/{path.name}"


def _check_arguments(text):
    """Refuses a flag in ARGS that names a local file: the machine would not find it."""
    for word in text.split():
        value = word.partition("=")[2].strip("'\"")
        if word.startswith("--") and value and os.path.exists(value) and not _is_code(value):
            raise UsageError(
                f"ARGS has {word}, and {value} is on this machine only. Copy it to the bucket and give its gs:// path; "
                "what CORPUS, VOCAB, CONFIG, INIT and DATA_DIR name is copied by itself."
            )


def _is_code(value):
    path = pathlib.Path(value).resolve()
    return any(path in ROOT.glob(pattern) for pattern in CODE)
