"""What is copied: the code and what variables name, nothing else; and what the variables are then."""

import io
import pathlib
import re
import subprocess
import tarfile

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scripts.cloud import sync
from scripts.cloud.errors import UsageError
from scripts.cloud.settings import Settings

PLACE = "gs://b-1/pretrain/data"


def plan(**variables):
    environment = {"TPU_NAME": "my-tpu", "BUCKET": "gs://b-1", **variables}
    return sync.plan(Settings.from_environment(environment, "pretrain"))


def write(folder, *names):
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")


def sent(transfer):
    """The files of a folder that gcloud would copy: it matches the expression at the start of each path."""
    paths = (path.relative_to(transfer.folder).as_posix() for path in transfer.folder.rglob("*") if path.is_file())
    exclude = re.compile(transfer.exclude)
    return {path for path in paths if not exclude.match(path)}


def test_the_archive_has_the_code_and_nothing_else():
    content = sync.pack(sync.ROOT)
    assert content == sync.pack(sync.ROOT)
    with tarfile.open(fileobj=io.BytesIO(content)) as archive:
        names = archive.getnames()
        assert archive.getmember("scripts/pretrain.sh").mode & 0o100
    assert {"bert/run_pretraining.py", "scripts/vm/job.py", "requirements.txt", "data/kjv/train.txt"} <= set(names)
    assert not [
        name for name in names if re.search(r"(^|/)\.|__pycache__|^(out|tests|docs)/|config\.mk|\.pem|key", name)
    ]


def test_keys_and_settings_beside_the_code_stay(tmp_path):
    names = ("bert/a.py", "bert/key.json", "config.mk", ".git/config", "out/x.py", "scripts/secret.pem", "Makefile")
    write(tmp_path, *names)
    with tarfile.open(fileobj=io.BytesIO(sync.pack(tmp_path))) as archive:
        assert archive.getnames() == ["Makefile", "bert/a.py"]


def test_the_machine_is_told_the_commit(tmp_path):
    (tmp_path / "bert").mkdir()
    (tmp_path / "Makefile").write_text("x")
    git = ["git", "-C", str(tmp_path), "-c", "user.name=me", "-c", "user.email=me@example.com"]
    for words in (["init", "-q"], ["add", "."], ["commit", "-qm", "one"]):
        subprocess.run([*git, *words], check=True)
    commit = subprocess.run([*git, "rev-parse", "HEAD"], check=True, capture_output=True, text=True).stdout.strip()
    with tarfile.open(fileobj=io.BytesIO(sync.pack(tmp_path))) as archive:
        assert archive.extractfile("bert/git_commit.txt").read().decode().strip() == commit


def test_local_paths_become_places_in_the_bucket(tmp_path):
    write(tmp_path, "text/a.txt", "text/b.txt", "text/c.md", "text/more/d.txt")
    write(tmp_path, "m/x.ckpt.index", "m/x.ckpt.data-0", "m/y", "m/vocab.txt", "m/.hidden")
    transfers, variables = plan(
        CORPUS=f"{tmp_path}/text/*.txt,gs://other/x,{tmp_path}/*/more/d.txt",
        VOCAB=str(tmp_path / "m" / "vocab.txt"),
        INIT=str(tmp_path / "m" / "x.ckpt"),
        DATA_DIR=str(tmp_path / "m"),
        CONFIG="bert-mini",
        STEPS="5",
    )
    assert variables == {
        "CORPUS": f"{PLACE}/corpus/0/*.txt,gs://other/x,{PLACE}/corpus/2/*/more/d.txt",
        "VOCAB": f"{PLACE}/vocab/vocab.txt",
        "INIT": f"{PLACE}/init/m/x.ckpt",
        "DATA_DIR": f"{PLACE}/data_dir/m",
        "CONFIG": "bert-mini",
        "STEPS": "5",
    }
    by_target = {transfer.target: transfer for transfer in transfers}
    assert sent(by_target["corpus/0"]) == {"a.txt", "b.txt"}
    assert sent(by_target["corpus/2"]) == {"text/more/d.txt"}
    assert sent(by_target["vocab"]) == {"vocab.txt"}
    assert sent(by_target["init/m"]) == {"x.ckpt.index", "x.ckpt.data-0", "vocab.txt"}
    assert sent(by_target["data_dir/m"]) == {"x.ckpt.index", "x.ckpt.data-0", "vocab.txt", "y"}
    for transfer in transfers:
        assert set(transfer.names) == sent(transfer)


@settings(max_examples=60, deadline=None)
@given(
    name=st.text(" $(){}[]'\"\\;&|<>*?!#~%:=,.^-abé語", min_size=1, max_size=12).filter(lambda n: n not in (".", ".."))
)
def test_names_are_taken_literally(tmp_path_factory, name):
    folder = tmp_path_factory.mktemp("names")
    for other in (name, "b", "b.txt"):
        (folder / other).write_text("x")
    (transfer,), variables = plan(VOCAB=str(folder / name))
    assert sent(transfer) == {name} and variables["VOCAB"] == f"{PLACE}/vocab/{name}"
    # gcloud splits at commas, or at what stands between ^ and ^.
    assert "," not in transfer.exclude and not transfer.exclude.startswith("^")


def test_links_are_followed(tmp_path):
    (tmp_path / "blob").write_text("content")
    model = tmp_path / "model"
    model.mkdir()
    (model / "model.safetensors").symlink_to("../blob")
    (transfer,), _ = plan(INIT=str(model))
    with sync._without_links(transfer) as folder:
        copied = pathlib.Path(folder, "model.safetensors")
        assert not copied.is_symlink() and copied.read_text() == "content"


@pytest.mark.parametrize("name", ["CORPUS", "EVAL_CORPUS", "VOCAB", "CONFIG", "RECIPE", "INIT", "DATA_DIR"])
def test_what_does_not_exist_is_named(name, tmp_path):
    with pytest.raises(UsageError, match=name):
        plan(**{name: f"{tmp_path}/nothing.json"})


def test_a_local_file_in_args_is_refused(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_text("x")
    with pytest.raises(UsageError, match="on this machine only"):
        plan(ARGS=f"--log_steps=5 --vocab_file={path}")
    plan(ARGS="--log_steps=5 --vocab_file=gs://b/vocab.txt --eval_file=data/kjv/held_out.txt")


def test_a_pod_gets_the_sample_corpus_through_the_bucket():
    transfers, variables = plan(TPU_TYPE="v3-32")
    assert variables["CORPUS"] == f"{PLACE}/corpus/0/train.txt"
    assert variables["EVAL_CORPUS"] == f"{PLACE}/eval_corpus/0/held_out.txt"
    assert [set(transfer.names) for transfer in transfers] == [{"train.txt"}, {"held_out.txt"}]
