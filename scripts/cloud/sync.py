"""make sync: code and data to the bucket, code onto the machine; only what changed, and nothing is ever deleted.

The code travels as one archive that is named after its content: what is there already is not sent again, and a job that
runs keeps the code it was started with. Data that a variable names by a local path go to the run's folder in the
bucket, and the program is given their place there.
"""

import contextlib
import dataclasses
import glob
import gzip
import hashlib
import io
import os
import pathlib
import re
import shutil
import subprocess
import tarfile
import tempfile

from scripts.cloud import prompt
from scripts.cloud.errors import CloudError, UsageError, failure
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
# What says, in the archive, of which commit the code is: the machine has no .git.
_COMMIT = "bert/git_commit.txt"
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
            raise CloudError(f"the disk of {settings.vm} is full. Make room there: {settings.command('ssh')}")
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
        commit = _commit(root)
        if commit:
            member = tarfile.TarInfo(_COMMIT)
            member.size = len(commit)
            archive.addfile(member, io.BytesIO(commit))
    return content.getvalue()


def _commit(root):
    """The commit of the code, as `bert/training/run_record.py` writes it down; empty if that is not known."""
    argv = ["git", "-C", str(root), "describe", "--always", "--dirty", "--abbrev=40", "--exclude=*"]
    try:
        result = subprocess.run(argv, stdin=subprocess.DEVNULL, capture_output=True, check=False)
    except OSError:
        return b""
    return result.stdout if result.returncode == 0 and (root / ".git").exists() else b""


# Data.


@dataclasses.dataclass(frozen=True)
class Transfer:
    """Files that go to the bucket.

    Attributes:
      folder: where they are.
      names: of the files, as paths in the folder.
      exclude: regular expression of the paths in the folder that stay, matched from their start.
      target: where they go, as a path in the run's folder `data`.
    """

    folder: pathlib.Path
    names: tuple
    exclude: str
    target: str


def send_data(settings, gcloud):
    """Copies what variables name by local paths to the run's folder in the bucket.

    Returns:
      The program's variables, with the places in the bucket for local paths.

    Raises:
      UsageError: a path does not exist.
      CloudError: something cannot be copied.
    """
    transfers, places = plan(settings)
    for transfer in transfers:
        target = f"{settings.prefix}/data/{transfer.target}"
        with _without_links(transfer) as folder:
            recursive = any("/" in name for name in transfer.names)
            gcloud.storage_sync(str(folder), target, transfer.exclude, recursive)
    return places


@contextlib.contextmanager
def _without_links(transfer):
    """The folder of a transfer; one with the files themselves if some are symbolic links, which gcloud leaves out."""
    if not any((transfer.folder / name).is_symlink() for name in transfer.names):
        yield transfer.folder
        return
    with tempfile.TemporaryDirectory() as folder:
        for name in transfer.names:
            source, link = (transfer.folder / name).resolve(), pathlib.Path(folder, name)
            link.parent.mkdir(parents=True, exist_ok=True)
            try:
                os.link(source, link)
            except OSError:  # it is on another disk
                shutil.copy2(source, link)
        yield folder


def plan(settings):
    """Which local files go where in the bucket, and what the variables are then.

    Returns:
      A list of `Transfer`, and a dict of the program's variables.

    Raises:
      UsageError: a path does not exist.
    """
    variables = dict(settings.program)
    is_pod = settings.tpu_type.is_pod and settings.has_tpu_vm
    if is_pod and not (variables.get("TASK") or variables.get("CORPUS")):
        # The workers of a pod slice read the data, and have no code.
        variables["CORPUS"], evaluation = (str(ROOT / name) for name in SAMPLE_CORPUS)
        variables.setdefault("EVAL_CORPUS", evaluation)
    transfers = []
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
            place, found = find(name, value)
            transfers += found
            variables[name] = ",".join(
                part if part.startswith("gs://") or not found else f"{settings.prefix}/data/{part}" for part in place
            )
    if variables.get("ARGS"):
        _check_arguments(variables["ARGS"])
    return transfers, variables


# Each of these returns where a variable's files are to be found, as paths in the run's folder `data`, and how they get
# there.


def _patterns(name, value):
    """Of files of text: patterns with commas between them."""
    places, transfers = [], []
    for i, pattern in enumerate(value.split(",")):
        if pattern.startswith("gs://"):
            places.append(pattern)
            continue
        path = os.path.expanduser(pattern)
        found = [found for found in glob.glob(path) if os.path.isfile(found)]
        if not found:
            raise UsageError(f"{name}={pattern} does not exist.")
        # What the pattern says of folders stays, below the folder that it is sure of.
        folder = os.path.dirname(path)
        while glob.has_magic(folder):
            folder = os.path.dirname(folder)
        names = tuple(sorted(os.path.relpath(source, folder or ".") for source in found))
        inside, target = os.path.relpath(path, folder or "."), f"{name.lower()}/{i}"
        only = re.escape(inside) if path == found[0] else _regex(inside)
        transfers.append(Transfer(pathlib.Path(folder), names, _all_but(only), target))
        places.append(f"{target}/{inside}")
    return places, transfers


def _file(name, value):
    path = pathlib.Path(value).expanduser()
    if not path.is_file():
        raise UsageError(f"{name}={value} does not exist.")
    transfer = Transfer(path.parent, (path.name,), _all_but(re.escape(path.name)), name.lower())
    return [f"{name.lower()}/{path.name}"], [transfer]


def _file_or_name(name, value):
    """One of the names that come with the code stays a name."""
    if pathlib.Path(value).expanduser().is_file():
        return _file(name, value)
    if "/" in value or value.endswith(".json"):
        raise UsageError(f"{name}={value} does not exist.")
    return [value], []


def _folder(name, value):
    """All the files of a folder but the hidden ones."""
    top = pathlib.Path(value).expanduser()
    if not top.is_dir():
        raise UsageError(f"{name}={value} is not a folder.")
    inside = (path.relative_to(top) for path in top.rglob("*") if path.is_file())
    names = tuple(sorted(path.as_posix() for path in inside if not any(part.startswith(".") for part in path.parts)))
    target = f"{name.lower()}/{top.resolve().name}"
    return [target], [Transfer(top, names, r"(.*/)?\.", target)]


def _checkpoint(name, value):
    """A folder, or the files whose names begin as a checkpoint is called, with what describes them."""
    path = pathlib.Path(value).expanduser()
    if path.is_dir():
        return _folder(name, value)
    found = [source.name for source in path.parent.glob(f"{glob.escape(path.name)}.*")] + [path.name] * path.is_file()
    if not found:
        raise UsageError(f"{name}={value} does not exist: it is a folder, or a checkpoint such as bert_model.ckpt.")
    names = (*found, *(other for other in ("bert_config.json", "vocab.txt") if (path.parent / other).is_file()))
    target = f"{name.lower()}/{path.parent.resolve().name}"
    exclude = _all_but("|".join(map(re.escape, names)))
    return [f"{target}/{path.name}"], [Transfer(path.parent, names, exclude, target)]


def _all_but(regex):
    """Regular expression of the paths that another one does not match, in a form that gcloud takes for one."""
    # A comma would end it, and one that begins with ^ would name another character to do so.
    return f"(?!({regex})$)".replace(",", r"\x2c")


def _regex(pattern):
    """A pattern of files as a regular expression."""
    parts = re.split(r"(\*+|\?|\[[^]]+\])", pattern)
    wild = {"*": lambda _: "[^/]*", "?": lambda _: "[^/]", "[": lambda part: part.replace("[!", "[^")}
    return "".join(wild.get(part[:1], re.escape)(part) for part in parts)


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
