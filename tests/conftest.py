"""Fixtures shared by all tests."""

import json
import logging
import pathlib

import pytest

SHARED_DATA = pathlib.Path(__file__).resolve().parents[2] / "shared" / "data"


def pytest_collection_modifyitems(items):
    """Marks what plays with a whole stand-in of the cloud: `make test` leaves it to PYTEST_ARGS='-m cloud'."""
    for item in items:
        if "cloud" in item.fixturenames:
            item.add_marker("cloud")
            item.add_marker(pytest.mark.timeout(900))  # gcloud takes a second of CPU for each command


@pytest.fixture(autouse=True)
def log_level():
    """Lets every test see what is logged, whatever a program has set in a test before."""
    logging.getLogger("absl").setLevel(logging.NOTSET)


@pytest.fixture(scope="session")
def shared_data():
    """Folder of large reference data kept outside the project; tests that need it are skipped without it."""
    if not SHARED_DATA.is_dir():
        pytest.skip("needs the reference data in ../shared/data, which is not part of the project")
    return SHARED_DATA


WORDS = (
    *("the", "of", "and", "to", "in", "he", "that", "was", "it", "his", "is", "with", "as"),
    *("had", "for", "she", "not", "at", "but", "be", "on", "they", "have", "him", "which", "said"),
)


@pytest.fixture(scope="session")
def tiny_text(tmp_path_factory):
    """A file of 60 documents whose sentences are made of 26 words, and each word of which predicts the next."""
    path = tmp_path_factory.mktemp("text") / "tiny.txt"
    documents = []
    for document in range(60):
        sentences = []
        for sentence in range(4 + document % 5):
            start = 7 * document + 3 * sentence
            sentences.append(" ".join(WORDS[(start + 5 * i) % len(WORDS)] for i in range(6 + sentence)) + ".")
        documents.append("\n".join(sentences))
    path.write_text("\n\n".join(documents) + "\n", encoding="utf-8")
    return path


@pytest.fixture(scope="session")
def tiny_model(tmp_path_factory):
    """Folder with the bert_config.json and vocab.txt of a model of 32 dimensions for `tiny_text`."""
    folder = tmp_path_factory.mktemp("model")
    tokens = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", ".", *WORDS]
    (folder / "vocab.txt").write_text("\n".join(tokens) + "\n", encoding="utf-8")
    config = {
        "vocab_size": len(tokens),
        "hidden_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 2,
        "intermediate_size": 64,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.1,
        "attention_probs_dropout_prob": 0.1,
        "max_position_embeddings": 64,
        "type_vocab_size": 2,
        "initializer_range": 0.1,
    }
    (folder / "bert_config.json").write_text(json.dumps(config), encoding="utf-8")
    return folder
