"""Text becomes records once, apart from the documents that are held out; records are taken as they are."""

import gzip
import os
import pathlib

import pytest

from bert.data import pretraining_data, records
from bert.data.pretraining_source import Source
from bert.errors import InputError


@pytest.fixture
def source(tiny_text, tiny_model, tmp_path):
    """Makes a `Source` of the tiny text, with other arguments where given."""

    def source(**given):
        arguments = {
            "input_file": str(tiny_text),
            "eval_file": None,
            "vocab_file": str(tiny_model / "vocab.txt"),
            "vocab_size": None,
            "settings": pretraining_data.Settings(dupe_factor=2),
            "folder": str(tmp_path / "records"),
            "held_out_fraction": 0.3,
            "num_workers": 1,
        }
        return Source(**{**arguments, **given})

    return source


def documents(paths):
    """Number of documents that records were made of."""
    return pretraining_data.read_manifest(paths[0])["documents"]


def test_held_out_documents_are_apart_from_training(source):
    one = source()
    training, held_out = one.training_files(32, 5), one.evaluation_files(32, 5)
    assert one.has_held_out_documents
    assert documents(training) + documents(held_out) == 60
    assert 0 < documents(held_out) < 40
    assert documents(source(held_out_fraction=0.0).training_files(32, 5)) == 60


def test_with_text_of_its_own_for_evaluation_all_documents_are_trained_on(source, tiny_text):
    one = source(eval_file=str(tiny_text))
    assert documents(one.training_files(32, 5)) == 60
    evaluation = one.evaluation_files(32, 5)
    assert documents(evaluation) == 60
    # One pass: more would evaluate the same documents again.
    assert pretraining_data.read_manifest(evaluation[0])["settings"]["dupe_factor"] == 1


def test_records_are_found_again_by_content(source, tiny_text, tmp_path):
    first = source().training_files(32, 5)
    written = {path: os.stat(path).st_mtime_ns for path in first}
    assert source().training_files(32, 5) == first
    copy = tmp_path / "copy.txt"
    copy.write_bytes(tiny_text.read_bytes())
    assert source(input_file=str(copy)).training_files(32, 5) == first
    assert {path: os.stat(path).st_mtime_ns for path in first} == written
    copy.write_text("Another document .\n\n" + tiny_text.read_text())
    assert source(input_file=str(copy)).training_files(32, 5) != first
    assert source().training_files(16, 5) != first


def test_a_vocabulary_is_trained_once(source, tmp_path):
    one = source(vocab_file=None, vocab_size=150)
    tokens = pathlib.Path(one.vocab_file).read_text().split("\n")
    assert {"[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "the"} <= set(tokens)
    written = os.stat(one.vocab_file).st_mtime_ns
    again = source(vocab_file=None, vocab_size=150)
    assert again.vocab_file == one.vocab_file and os.stat(one.vocab_file).st_mtime_ns == written
    assert source(vocab_file=None, vocab_size=160).vocab_file != one.vocab_file


def test_text_without_a_vocabulary_is_refused(source):
    with pytest.raises(InputError, match="--input_file is text, which needs a vocabulary: give --vocab_file"):
        source(vocab_file=None)


def test_records_are_taken_as_they_are_by_the_length_of_the_phase(source, tmp_path):
    made = source()
    for length in (16, 32):
        folder = tmp_path / "own" / f"seq{length}"
        folder.mkdir(parents=True)
        for i, path in enumerate(made.training_files(length, 3)):
            os.link(path, folder / f"{i}.tfrecord")
    own = source(input_file=str(tmp_path / "own" / "seq{max_seq_length}" / "*.tfrecord"), vocab_file=None)
    assert not own.has_held_out_documents
    for length in (16, 32):
        paths = own.training_files(length, 3)
        assert len(paths) == 8
        assert records.peek(paths[0]).max_seq_length == length
    with pytest.raises(InputError, match=r"--input_file: no file matches .*seq64"):
        own.training_files(64, 3)


def test_compressed_text_is_no_text(source, tiny_text, tmp_path):
    path = tmp_path / "text.gz"
    path.write_bytes(gzip.compress(tiny_text.read_bytes()))
    one = source(input_file=str(path))
    with pytest.raises(InputError, match=r"text\.gz"):
        records.peek(one.training_files(32, 5)[0])
