"""Token stores: found by content, equal to the reference tokenization, rebuilt when damaged."""

import pathlib

import numpy as np
import pytest

from bert import tokenization
from bert.data import corpus as corpora
from bert.data import text, token_store
from bert.data.pretraining_data import Settings
from bert.errors import InputError

VOCAB = {
    token: number
    for number, token in enumerate(
        ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *"abcdefg.", *["##" + c for c in "abc"]]
    )
}
TEXT = "ab a. b\n\n\n  c d! \nabc\n\xa0\n\u00ad\nfg\n"


def open_stores(tmp_path, paths, vocab=VOCAB, settings=None, num_workers=1):
    paths = [str(path) for path in paths]
    digests = [token_store.digest_file(path) for path in paths]
    return token_store.open_stores(
        paths, digests, vocab, f"vocab{len(vocab)}", settings or Settings(), str(tmp_path / "cache"), num_workers
    )


def read_documents(store, dtype="<u2"):
    """The documents of a store as lists of lists of ids."""
    ids = np.fromfile(store.part("tokens"), dtype)
    lengths = np.fromfile(store.part("lengths"), "<u4")
    documents = np.fromfile(store.part("documents"), token_store.DOCUMENT)
    sentences = [part.tolist() for part in np.split(ids, np.cumsum(lengths)[:-1])]
    ends = np.cumsum(documents["sentences"]).tolist()
    np.testing.assert_array_equal(
        documents["tokens"], [sum(map(len, sentences[a:b])) for a, b in zip([0, *ends], ends)]
    )
    return [sentences[start:end] for start, end in zip([0, *ends], ends)]


def documents_by_reference(text, vocab):
    tokenizer = tokenization.FullTokenizer.__new__(tokenization.FullTokenizer)
    tokenizer.vocab = vocab
    tokenizer.basic_tokenizer = tokenization.BasicTokenizer(do_lower_case=True)
    tokenizer.wordpiece_tokenizer = tokenization.WordpieceTokenizer(vocab=vocab)
    documents = [[]]
    for line in text.split("\n"):
        if not line.strip():
            documents.append([])
        elif tokens := tokenizer.tokenize(line):
            documents[-1].append([vocab[token] for token in tokens])
    return [document for document in documents if document]


def test_documents_are_those_of_the_reference(tmp_path):
    path = tmp_path / "a.txt"
    path.write_text(TEXT)
    (store,) = open_stores(tmp_path, [path])
    assert read_documents(store) == documents_by_reference(TEXT, VOCAB)
    assert (store.documents, store.sentences, store.tokens, store.unknown) == (3, 4, 12, 2)
    assert store.single_sentence_documents == 2


@pytest.mark.parametrize("num_workers", [1, 2])
def test_documents_across_blocks(tmp_path, num_workers):
    rng = np.random.default_rng(0)
    letters = np.array(list("abcd. \n"))
    text = "".join(rng.choice(letters, 2_500_000, p=[0.2, 0.2, 0.2, 0.2, 0.1, 0.097, 0.003]).tolist())
    path = tmp_path / "a.txt"
    path.write_text(text)
    (store,) = open_stores(tmp_path, [path], num_workers=num_workers)
    ids = np.fromfile(store.part("tokens"), "<u2")
    documents = read_documents(store)
    assert sum(len(sentence) for document in documents for sentence in document) == len(ids) == store.tokens
    lines = [line for line in text.split("\n") if line.strip()]
    assert store.sentences == len(lines)
    # A document's hash depends on its tokens only, not on where the blocks of the file are cut.
    hashes = np.fromfile(store.part("documents"), token_store.DOCUMENT)["hash"]
    last = tmp_path / "b.txt"
    last.write_text(text[text.rindex("\n\n") :])
    (small,) = open_stores(tmp_path, [last])
    assert np.fromfile(small.part("documents"), token_store.DOCUMENT)["hash"][-1] == hashes[-1]


def test_one_more_file_tokenizes_that_file_only(tmp_path):
    for name in "ab":
        (tmp_path / name).write_text(TEXT + name)
    assert [store.cached for store in open_stores(tmp_path, [tmp_path / "a"])] == [False]
    stores = open_stores(tmp_path, [tmp_path / "a", tmp_path / "b"])
    assert [store.cached for store in stores] == [True, False]
    # By content: another name changes nothing, another text does.
    (tmp_path / "a").rename(tmp_path / "c")
    assert [store.cached for store in open_stores(tmp_path, [tmp_path / "c"])] == [True]
    (tmp_path / "c").write_text(TEXT + "ab")
    assert [store.cached for store in open_stores(tmp_path, [tmp_path / "c"])] == [False]


def test_what_ids_depend_on_makes_another_store(tmp_path):
    path = tmp_path / "a"
    path.write_text(TEXT)
    variants = [
        {"settings": Settings()},
        {"settings": Settings(do_lower_case=False)},
        {"settings": Settings(strip_accents=False)},
        {"settings": Settings(input_encoding="latin1")},
        {"vocab": {**VOCAB, "x": len(VOCAB)}},
    ]
    folders = {open_stores(tmp_path, [path], **variant)[0].folder for variant in variants}
    assert len(folders) == len(variants)
    other = Settings(max_seq_length=512, dupe_factor=3, random_seed=5, do_whole_word_mask=True, masked_lm_prob=0.3)
    assert open_stores(tmp_path, [path], settings=other)[0].cached


@pytest.mark.parametrize("part", ["tokens", "lengths", "documents", "meta.json"])
@pytest.mark.parametrize("damage", ["cut", "flip", "remove"])
def test_a_damaged_store_is_made_anew(tmp_path, part, damage):
    path = tmp_path / "a"
    path.write_text(TEXT)
    (store,) = open_stores(tmp_path, [path])
    good = {
        name: pathlib.Path(store.part(name)).read_bytes() for name in ("tokens", "lengths", "documents", "meta.json")
    }
    victim = pathlib.Path(store.part(part))
    if damage == "remove":
        victim.unlink()
    elif damage == "cut":
        victim.write_bytes(good[part][:-3])
    else:
        victim.write_bytes(b"\xff" + good[part][1:])
    (again,) = open_stores(tmp_path, [path])
    assert not again.cached
    assert {name: pathlib.Path(again.part(name)).read_bytes() for name in good} == good
    assert open_stores(tmp_path, [path])[0].cached


def test_a_text_that_fails_leaves_nothing_behind(tmp_path):
    path = tmp_path / "a"
    path.write_bytes(b"good\n\xff\n")
    with pytest.raises(InputError, match="line 2"):
        open_stores(tmp_path, [path])
    assert list((tmp_path / "cache").iterdir()) == []


def test_a_text_that_changes_while_it_is_read_is_refused(tmp_path):
    path = tmp_path / "a"
    path.write_text(TEXT)
    with pytest.raises(InputError, match="changed while it was read"):
        token_store.open_stores(
            [str(path)], ["digest of the text before"], VOCAB, "v", Settings(), str(tmp_path / "cache")
        )


def test_a_text_that_cannot_be_read_is_named(tmp_path):
    with pytest.raises(InputError, match=r"gone\.txt: cannot be read"):
        token_store.digest_file(str(tmp_path / "gone.txt"))


def test_ids_of_a_large_vocabulary_take_four_bytes(tmp_path):
    vocab = {**VOCAB, **{f"word{i}": i for i in range(len(VOCAB), 70_000)}}
    path = tmp_path / "a"
    path.write_text("word69999 a\n\nword65536\n")
    (store,) = open_stores(tmp_path, [path], vocab=vocab)
    assert read_documents(store, "<u4") == [[[69_999, VOCAB["a"]]], [[65_536]]]


def test_corpus_holds_the_chosen_documents_in_order(tmp_path):
    texts = ["".join(f"{c} {'ab'[(i + j) % 2]}\n" for j, c in enumerate("abcdefg"[: 1 + i % 5])) for i in range(100)]
    for name, part in (("x", texts[:30]), ("y", texts[30:])):
        (tmp_path / name).write_text("\n".join(part))
    stores = open_stores(tmp_path, [tmp_path / "x", tmp_path / "y"])
    documents = [document for store in stores for document in read_documents(store)]
    for keep in (lambda h: np.ones(len(h), bool), lambda h: h % 3 == 0, lambda h: h % 3 != 0):
        chosen = np.concatenate(
            [keep(np.fromfile(store.part("documents"), token_store.DOCUMENT)["hash"]) for store in stores]
        )
        expected = [document for document, take in zip(documents, chosen) if take]
        sizes = corpora.build(str(tmp_path), stores, np.dtype("<u2"), keep)
        corpus = corpora.Corpus(str(tmp_path))
        assert sizes == (corpus.num_documents, corpus.num_sentences, len(corpus.tokens) // 2)
        got = []
        for first, end in zip(corpus.documents.array, corpus.documents.array[1:]):
            borders = corpus.sentences.array[first : end + 1]
            got.append(
                [np.frombuffer(corpus.tokens[2 * a : 2 * b], "<u2").tolist() for a, b in zip(borders, borders[1:])]
            )
        assert got == expected


def test_held_out_share_and_stability():
    hashes = np.random.default_rng(0).integers(0, 1 << 64, 100_000, dtype=np.uint64)
    tenth = corpora.held_out(hashes, 0.1)
    assert abs(tenth.mean() - 0.1) < 0.005
    assert not corpora.held_out(hashes, 0.0).any()
    assert corpora.held_out(hashes, 1.0).all()
    assert corpora.held_out(hashes, 0.2)[tenth].all()


def test_another_version_of_sentence_segmentation_makes_another_store(tmp_path, monkeypatch):
    path = tmp_path / "a.txt"
    path.write_text("Ab a. B c.\n")
    split, whole = Settings(segment_sentences=True), Settings()
    (first,) = open_stores(tmp_path, [path], settings=split)
    assert open_stores(tmp_path, [path], settings=split)[0].cached
    open_stores(tmp_path, [path], settings=whole)
    monkeypatch.setattr(text, "segmentation_version", lambda: "sentencex 0.0")
    (other,) = open_stores(tmp_path, [path], settings=split)
    assert not other.cached and other.folder != first.folder
    assert open_stores(tmp_path, [path], settings=whole)[0].cached
