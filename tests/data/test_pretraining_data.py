"""Pretraining data as a whole: what records hold, determinism, restart, errors."""

import json
import os
import pathlib
import resource
import signal
import subprocess
import sys
import time

import numpy as np
import pytest

from bert import tokenization
from bert.data import corpus, pretraining_data, records, shards
from bert.data.pretraining_data import Settings
from bert.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[2]
SPECIAL = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
PAD, UNK, CLS, SEP, MASK = range(5)
WORDS = ["".join((a, b)) for a in "bcdfghkl" for b in "aeiou"]
TAILS = ["##n", "##r", "##st"]
VOCAB = [*SPECIAL, *WORDS, *TAILS, ".", ","]


def make_text(number, seed=0):
    """Documents of sentences of words with tails; no two sentences are alike."""
    rng = np.random.default_rng(seed)
    documents = []
    for _ in range(number):
        sentences = []
        for _ in range(rng.integers(1, 20)):
            words = rng.choice(WORDS, rng.integers(1, 25))
            tails = rng.choice(["", "", "n", "r", "st", "nr", "stst"], len(words))
            sentences.append(" ".join(word + tail for word, tail in zip(words, tails)) + ".")
        documents.append("\n".join(sentences))
    return "\n\n".join(documents) + "\n"


@pytest.fixture
def inputs(tmp_path):
    """Paths of two texts and a vocabulary, and the cache to use."""
    (tmp_path / "vocab.txt").write_text("\n".join(VOCAB) + "\n")
    (tmp_path / "a.txt").write_text(make_text(20, 1))
    (tmp_path / "b.txt").write_text(make_text(15, 2))
    return {
        "input_files": [str(tmp_path / "a.txt"), str(tmp_path / "b.txt")],
        "vocab_file": str(tmp_path / "vocab.txt"),
        "token_cache": str(tmp_path / "cache"),
    }


def small(**settings):
    return Settings(**{"max_seq_length": 32, "max_predictions_per_seq": 5, "dupe_factor": 2, **settings})


def read(paths):
    return [records.parse(record) for path in paths for record in records.read(str(path))]


def tokenized_documents(paths, vocab_file, do_lower_case=True):
    """The documents as the reference tokenizes them: lists of ids."""
    tokenizer = tokenization.FullTokenizer(str(vocab_file), do_lower_case=do_lower_case)
    documents = []
    for path in paths:
        documents.append([])
        for line in pathlib.Path(path).read_text(encoding="utf-8").split("\n"):
            if not line.strip():
                documents.append([])
            documents[-1] += tokenizer.convert_tokens_to_ids(tokenizer.tokenize(line))
    return [document for document in documents if document]


class Haystack:
    """Finds stretches of ids in documents."""

    def __init__(self, documents):
        self._documents = [np.array(document, "<u4").tobytes() for document in documents]

    def where(self, ids):
        """Set of (document, position) at which the ids occur."""
        needle = np.asarray(ids, "<u4").tobytes()
        found = set()
        for number, document in enumerate(self._documents):
            position = document.find(needle)
            while position >= 0:
                if position % 4 == 0:
                    found.add((number, position // 4))
                position = document.find(needle, position + 1)
        return found


def check_record(features, settings, haystack, cls=CLS, sep=SEP, mask=MASK, tails=frozenset()):
    """Checks what holds for every record whatever was drawn; returns the unmasked ids."""
    length = int(features["input_mask"].sum())
    assert len(features["input_ids"]) == settings.max_seq_length
    assert len(features["masked_lm_ids"]) == settings.max_predictions_per_seq
    np.testing.assert_array_equal(features["input_mask"], np.arange(settings.max_seq_length) < length)
    assert not features["input_ids"][length:].any() and not features["segment_ids"][length:].any()
    weights = features["masked_lm_weights"]
    count = int(weights.sum())
    np.testing.assert_array_equal(weights, np.arange(len(weights)) < count)
    positions, labels = features["masked_lm_positions"], features["masked_lm_ids"]
    assert not positions[count:].any() and not labels[count:].any()
    positions, labels = positions[:count], labels[:count]
    assert (np.diff(positions) > 0).all()
    budget = min(settings.max_predictions_per_seq, max(1, round(length * settings.masked_lm_prob)))
    ids = features["input_ids"].copy()
    masked = ids[positions]
    ids[positions] = labels
    assert ids[0] == cls and ids[length - 1] == sep
    specials = np.flatnonzero(np.isin(ids[:length], (cls, sep)))
    assert not set(positions) & set(specials)
    candidates = length - len(specials)
    if settings.do_whole_word_mask:
        assert count <= min(budget, candidates)
        words = []
        for position in range(1, length):
            if position not in specials:
                if ids[position] in tails and words:
                    words[-1].append(position)
                else:
                    words.append([position])
        for word in words:
            assert len(set(word) & set(positions)) in (0, len(word))
    else:
        assert count == min(budget, candidates)
    # The only [MASK]s are those that were put in.
    assert set(np.flatnonzero(ids[:length] == mask)) == set()
    assert len(masked) == count
    if settings.no_nsp:
        assert specials.tolist() == [0, length - 1] and not features["segment_ids"].any()
        assert features["next_sentence_labels"] == [0]
        assert haystack.where(ids[1 : length - 1])
        return ids[1 : length - 1]
    assert len(specials) == 3
    middle = int(specials[1])
    np.testing.assert_array_equal(features["segment_ids"][:length], (np.arange(length) > middle).astype(int))
    a, b = ids[1:middle], ids[middle + 1 : length - 1]
    assert len(a) and len(b)
    in_a, in_b = haystack.where(a), haystack.where(b)
    assert in_a and in_b
    if features["next_sentence_labels"] == [0]:
        follows = {(d, p) for d, p in in_b if any(d == d2 and p >= p2 + len(a) for d2, p2 in in_a)}
        assert follows
        if length < settings.max_seq_length:
            assert any((d, p - len(a)) in in_a for d, p in follows)
    return np.concatenate([a, b])


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"do_whole_word_mask": True},
        {"no_nsp": True},
        {"no_nsp": True, "do_whole_word_mask": True, "masked_lm_prob": 0.3, "max_predictions_per_seq": 10},
        {"max_seq_length": 128, "max_predictions_per_seq": 20, "short_seq_prob": 0.5},
        {"max_seq_length": 5, "max_predictions_per_seq": 1, "dupe_factor": 1},
    ],
)
def test_every_record_keeps_the_rules(tmp_path, inputs, options):
    settings = small(**options)
    out = [str(tmp_path / "x"), str(tmp_path / "y")]
    manifest = pretraining_data.create(output_files=out, settings=settings, **inputs)
    documents = tokenized_documents(inputs["input_files"], inputs["vocab_file"])
    haystack = Haystack(documents)
    tails = {VOCAB.index(tail) for tail in TAILS}
    parsed = read(out)
    kept = [check_record(features, settings, haystack, tails=tails) for features in parsed]
    assert manifest.documents == len(documents) == 35
    assert manifest.text_tokens == sum(map(len, documents))
    assert manifest.records == len(parsed) == sum(manifest.counts)
    assert manifest.tokens == sum(int(features["input_mask"].sum()) for features in parsed)
    assert abs(manifest.counts[0] - manifest.counts[1]) <= 1
    for path, count in zip(out, manifest.counts):
        assert records.count(path) == count
        shape = records.peek(path)
        assert shape.max_seq_length == settings.max_seq_length
        assert shape.max_token_id < len(VOCAB)
    if settings.max_seq_length == 128:
        assert sum(map(len, kept)) > manifest.text_tokens  # two passes, less what is trimmed


def test_rates_of_masking_over_seeds(tmp_path, inputs):
    kinds = np.zeros(3)
    random_next = []
    for seed in range(4):
        out = str(tmp_path / "x")
        pretraining_data.create(output_files=[out], settings=small(random_seed=seed), **inputs)
        for features in read([out]):
            count = int(features["masked_lm_weights"].sum())
            labels = features["masked_lm_ids"][:count]
            now = features["input_ids"][features["masked_lm_positions"][:count]]
            kinds += [(now == MASK).sum(), (now == labels).sum(), ((now != MASK) & (now != labels)).sum()]
            random_next.append(int(features["next_sentence_labels"][0]))
    expected = np.array([0.8, 0.1, 0.1]) * kinds.sum()
    expected += np.array([1, 1, -2]) * 0.1 * kinds.sum() / len(VOCAB)
    assert np.abs((kinds - expected) / np.sqrt(expected)).max() < 4.5
    assert 0.5 < np.mean(random_next) < 0.8


@pytest.mark.parametrize("options", [{}, {"do_whole_word_mask": True}, {"no_nsp": True, "pack_sequences": True}])
def test_bytes_do_not_depend_on_the_number_of_workers(tmp_path, inputs, options):
    contents = []
    for num_workers in (1, 2, 3):
        out = [str(tmp_path / f"{num_workers}-{shard}") for shard in range(3)]
        pretraining_data.create(output_files=out, settings=small(**options), num_workers=num_workers, **inputs)
        contents.append([pathlib.Path(path).read_bytes() for path in out])
    assert contents[0] == contents[1] == contents[2]


def test_many_buckets_hold_the_same_records_as_one(tmp_path, inputs, monkeypatch):
    # Whichever bucket an instance comes to, none is lost and none comes twice.
    def pairs(path):
        found = []
        for features in read([path]):
            ids = features["input_ids"].copy()
            count = int(features["masked_lm_weights"].sum())
            ids[features["masked_lm_positions"][:count]] = features["masked_lm_ids"][:count]
            found.append(ids.tobytes())
        return found

    one, many = str(tmp_path / "one"), str(tmp_path / "many")
    pretraining_data.create(output_files=[one], settings=small(), **inputs)
    monkeypatch.setattr(shards, "_RECORDS_PER_BUCKET", 50)
    manifest = pretraining_data.create(output_files=[many], settings=small(), **inputs)
    assert manifest.records > 200
    assert pairs(one) != pairs(many)
    assert sorted(pairs(one)) == sorted(pairs(many))


def test_what_does_not_fit_in_memory_gives_the_same_bytes(tmp_path, inputs, monkeypatch):
    out = [tmp_path / "small", tmp_path / "large"]
    pretraining_data.create(output_files=[str(out[0])], settings=small(), **inputs)
    monkeypatch.setattr(corpus, "_SMALL_BYTES", 0)
    pretraining_data.create(output_files=[str(out[1])], settings=small(), **inputs)
    assert out[0].read_bytes() == out[1].read_bytes()


def test_order_is_shuffled_globally(tmp_path):
    # Each document has its own word, so that records tell where they come from.
    words = [f"w{i:03d}" for i in range(200)]
    (tmp_path / "vocab.txt").write_text("\n".join([*SPECIAL, *words]) + "\n")
    (tmp_path / "a.txt").write_text("\n\n".join("\n".join([f"{word} {word}"] * 20) for word in words))
    out = [str(tmp_path / f"o{i}") for i in range(4)]
    pretraining_data.create(
        [str(tmp_path / "a.txt")],
        str(tmp_path / "vocab.txt"),
        out,
        small(dupe_factor=3),
        token_cache=str(tmp_path / "cache"),
    )
    source = np.array([features["masked_lm_ids"][0] for features in read(out)], float)
    place = np.arange(len(source))
    assert abs(np.corrcoef(source, place)[0, 1]) < 4.5 / np.sqrt(len(source))
    for shard in np.array_split(source, 4):
        assert len(np.unique(shard)) > 100


def test_the_same_inputs_give_the_same_records_and_others_do_not(tmp_path, inputs):
    contents = set()
    for number, settings in enumerate([small(), small(), small(random_seed=1), small(random_seed=-1)]):
        out = tmp_path / str(number)
        pretraining_data.create(output_files=[str(out)], settings=settings, **inputs)
        contents.add(out.read_bytes())
    assert len(contents) == 3


def test_fingerprint_is_by_content(tmp_path, inputs):
    args = [inputs["input_files"], inputs["vocab_file"]]
    base = pretraining_data.fingerprint(*args, small())
    assert base == pretraining_data.fingerprint(*args, small(strip_accents=True))
    moved = tmp_path / "moved.txt"
    moved.write_bytes(pathlib.Path(args[0][0]).read_bytes())
    assert base == pretraining_data.fingerprint([str(moved), args[0][1]], args[1], small())
    others = [
        pretraining_data.fingerprint(*args, small(do_lower_case=False)),
        pretraining_data.fingerprint(*args, small(masked_lm_prob=0.2)),
        pretraining_data.fingerprint(*args, small(), split="train", held_out_fraction=0.1),
        pretraining_data.fingerprint(args[0][::-1], args[1], small()),
    ]
    moved.write_text("another text")
    others.append(pretraining_data.fingerprint([str(moved), args[0][1]], args[1], small()))
    assert len({base, *others}) == 6


def test_finished_files_are_kept(tmp_path, inputs):
    out = [str(tmp_path / name) for name in "xyz"]
    first = pretraining_data.create(output_files=out, settings=small(), **inputs)
    contents = [pathlib.Path(path).read_bytes() for path in out]
    times = [os.stat(path).st_mtime_ns for path in out]
    again = pretraining_data.create(output_files=out, settings=small(), **inputs)
    assert (first.kept, again.kept) == (0, 3)
    assert (again.records, again.tokens, again.documents) == (first.records, first.tokens, first.documents)
    # Removed, cut short, without its manifest: made anew, the others kept.
    for damage in (
        lambda path: os.remove(path),
        lambda path: os.truncate(path, 1000),
        lambda path: os.remove(shards.manifest_path(path)),
    ):
        damage(out[1])
        assert pretraining_data.create(output_files=out, settings=small(), **inputs).kept == 2
        assert [pathlib.Path(path).read_bytes() for path in out] == contents
    assert [os.stat(path).st_mtime_ns for path in (out[0], out[2])] == [times[0], times[2]]
    # Other settings replace them all.
    assert pretraining_data.create(output_files=out, settings=small(random_seed=9), **inputs).kept == 0
    # Another number of files does too: each then holds another share.
    assert pretraining_data.create(output_files=out[:2], settings=small(random_seed=9), **inputs).kept == 0


def test_manifest_beside_each_file(tmp_path, inputs):
    out = [str(tmp_path / name) for name in ("x.tfrecord", "y.tfrecord")]
    made = pretraining_data.create(output_files=out, settings=small(), **inputs)
    for shard, path in enumerate(out):
        manifest = pretraining_data.read_manifest(path)
        assert manifest["records"] == records.count(path) == made.counts[shard]
        assert manifest["fingerprint"] == made.fingerprint
        assert (manifest["max_seq_length"], manifest["shard"], manifest["num_shards"]) == (32, shard, 2)
        assert manifest["settings"]["dupe_factor"] == 2
    assert not list(tmp_path.glob("x.tfrecord?*"))
    os.truncate(out[0], 500)
    with pytest.raises(InputError, match="cut short"):
        pretraining_data.read_manifest(out[0])
    described = pathlib.Path(shards.manifest_path(out[1]))
    described.write_text(json.dumps({**json.loads(described.read_text()), "records": 7}))
    with pytest.raises(InputError, match=r"records of \d+ bytes.*says 7: "):
        pretraining_data.read_manifest(out[1])
    assert pretraining_data.read_manifest(inputs["vocab_file"]) is None


def test_cache_serves_other_settings(tmp_path, inputs):
    first = pretraining_data.create(output_files=[str(tmp_path / "x")], settings=small(), **inputs)
    assert [store.cached for store in first.stores] == [False, False]
    other = small(max_seq_length=64, dupe_factor=5, do_whole_word_mask=True)
    second = pretraining_data.create(output_files=[str(tmp_path / "y")], settings=other, **inputs)
    assert [store.cached for store in second.stores] == [True, True]


def test_splits_share_no_document_and_new_files_move_none(tmp_path, inputs):
    def split(name, files):
        out = str(tmp_path / name)
        made = pretraining_data.create(
            files,
            inputs["vocab_file"],
            [out],
            small(no_nsp=True, max_seq_length=1024, short_seq_prob=0.0, dupe_factor=1),
            split=name,
            held_out_fraction=0.3,
            token_cache=inputs["token_cache"],
        )
        documents = set()
        for features in read([out]):
            ids = features["input_ids"].copy()
            count = int(features["masked_lm_weights"].sum())
            ids[features["masked_lm_positions"][:count]] = features["masked_lm_ids"][:count]
            documents.add(ids.tobytes())
        assert len(documents) == made.documents
        return documents

    files = inputs["input_files"]
    train, held_out, both = split("train", files), split("held_out", files), split("all", files)
    assert train and held_out and not train & held_out and train | held_out == both
    assert split("train", files[1:]) < train
    assert split("held_out", files[1:]) < held_out


def run_in_process(inputs, out, settings, num_workers, limit=None):
    """Starts `create` in a process of its own."""
    program = (
        "import sys, json\n"
        "from bert.data import pretraining_data as p\n"
        "from bert.errors import InputError\n"
        "inputs, out, settings, workers = json.loads(sys.argv[1])\n"
        "try:\n"
        "    p.create(output_files=out, settings=p.Settings(**settings), num_workers=workers, **inputs)\n"
        "except InputError as e:\n"
        "    sys.exit(f'InputError: {e}')\n"
    )
    return subprocess.Popen(
        [sys.executable, "-c", program, json.dumps([inputs, out, settings, num_workers])],
        cwd=ROOT,
        stderr=subprocess.PIPE,
        text=True,
        preexec_fn=(lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (limit, limit))) if limit else None,
    )


@pytest.mark.parametrize("num_workers", [1, 2])
def test_killed_and_restarted_it_gives_the_same_bytes(tmp_path, inputs, num_workers):
    settings = {"max_seq_length": 64, "max_predictions_per_seq": 10, "dupe_factor": 120}
    reference = [str(tmp_path / f"reference{shard}") for shard in range(6)]
    pretraining_data.create(output_files=reference, settings=Settings(**settings), **inputs)
    folder = tmp_path / "out"
    out = [str(folder / f"x{shard}") for shard in range(6)]
    kills = 0
    for delay in (0.35, 0.5, 0.65, 0.8, None):
        process = run_in_process(inputs, out, settings, num_workers)
        if delay:
            time.sleep(delay)
            process.send_signal(signal.SIGKILL)
            kills += process.wait() == -signal.SIGKILL
            # Whatever is there under a final name is complete.
            for path, expected in zip(out, reference):
                if os.path.exists(path):
                    assert pathlib.Path(path).read_bytes() == pathlib.Path(expected).read_bytes()
        process.stderr.close()
        assert process.wait() == (0 if delay is None else process.returncode)
    assert kills
    for path, expected in zip(out, reference):
        assert pathlib.Path(path).read_bytes() == pathlib.Path(expected).read_bytes()
    assert sorted(path.name for path in folder.iterdir()) == sorted(
        [*(f"x{shard}" for shard in range(6)), *(f"manifest-x{shard}.json" for shard in range(6))]
    )


@pytest.mark.parametrize("num_workers", [1, 2])
def test_a_file_that_cannot_grow_is_an_error_in_words(tmp_path, inputs, num_workers):
    pretraining_data.create(output_files=[str(tmp_path / "fill-cache")], settings=small(), **inputs)
    out = tmp_path / "out" / "x"
    process = run_in_process(
        inputs, [str(out)], {"max_seq_length": 128, "dupe_factor": 40}, num_workers, limit=1_000_000
    )
    error = process.communicate()[1]
    assert process.returncode == 1 and "InputError" in error and str(out) in error and "too large" in error
    assert list(out.parent.iterdir()) == []


@pytest.mark.skipif(os.geteuid() != 0 or sys.platform != "linux", reason="needs root to mount a small disk")
@pytest.mark.parametrize("megabytes", [1, 3])
def test_a_full_disk_is_an_error_in_words(tmp_path, inputs, megabytes):
    disk = tmp_path / "disk"
    disk.mkdir()
    mounted = subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(disk)], check=False)
    if mounted.returncode:
        pytest.skip("cannot mount a small disk here")
    try:
        out = disk / "x"
        with pytest.raises(InputError, match=r"free|No space left"):
            pretraining_data.create(output_files=[str(out)], settings=Settings(dupe_factor=80), **inputs)
        assert list(disk.iterdir()) == []
        # Another program fills the disk after the check: less is left than was found.
        with pytest.raises(InputError, match=r"free|No space left"):
            pretraining_data.create(
                output_files=[str(tmp_path / "y")], settings=small(), **{**inputs, "token_cache": fill(disk)}
            )
        assert not (tmp_path / "y").exists()
    finally:
        subprocess.run(["umount", str(disk)], check=True)


def fill(disk):
    """Fills a disk up; returns a cache folder on it."""
    cache = disk / "cache"
    cache.mkdir()
    with open(disk / "filler", "wb", buffering=0) as f:
        try:
            while f.write(b"x" * 4096):
                pass
        except OSError:
            pass
    return str(cache)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "No text in"),
        ("\n\n \n", "No text in"),
        ("ba be.\nbi bo.\n", "only one document"),
        (b"ba\n\xff\xfe\n", "line 2"),
    ],
)
def test_texts_that_cannot_be_used(tmp_path, inputs, text, message):
    path = tmp_path / "bad.txt"
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    out = tmp_path / "out" / "x"
    with pytest.raises(InputError, match=message) as error:
        pretraining_data.create(output_files=[str(out)], settings=small(), **{**inputs, "input_files": [str(path)]})
    assert str(path) in str(error.value)
    assert not out.parent.exists() or not list(out.parent.iterdir())


def test_one_document_will_do_without_next_sentences(tmp_path, inputs):
    path = tmp_path / "one.txt"
    path.write_text("ba be.\nbi bo.\n")
    made = pretraining_data.create(
        output_files=[str(tmp_path / "x")], settings=small(no_nsp=True), **{**inputs, "input_files": [str(path)]}
    )
    assert made.records == 2


def test_warnings_name_the_file(tmp_path, inputs, caplog):
    blank_lines = tmp_path / "blank.txt"
    blank_lines.write_text("\n\n".join(["ba be bi."] * 20))
    unknown = tmp_path / "unknown.txt"
    unknown.write_text("xyz qq ba.\nba be.\nbi bo.\n\nxyz vv.\nba.\n")
    empty = tmp_path / "empty.txt"
    empty.write_text("\n")
    paths = [str(path) for path in (blank_lines, unknown, empty)]
    pretraining_data.create(
        output_files=[str(tmp_path / "x")],
        settings=small(max_predictions_per_seq=1),
        **{**inputs, "input_files": paths},
    )
    warnings = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    for path, message in ((blank_lines, "blank line after every sentence"), (unknown, "[UNK]"), (empty, "no text")):
        assert any(str(path) in warning and message in warning for warning in warnings), message
    assert any("--max_predictions_per_seq=1 masks only" in warning for warning in warnings)


@pytest.mark.parametrize("missing", ["[UNK]", "[CLS]", "[SEP]", "[MASK]"])
def test_vocabulary_without_a_special_token(tmp_path, inputs, missing):
    path = tmp_path / "v.txt"
    path.write_text("\n".join(token for token in VOCAB if token != missing))
    with pytest.raises(InputError, match=missing.strip("[]")) as error:
        pretraining_data.create(
            output_files=[str(tmp_path / "x")], settings=small(), **{**inputs, "vocab_file": str(path)}
        )
    assert str(path) in str(error.value)


@pytest.mark.parametrize(
    "settings",
    [
        {"max_predictions_per_seq": 33},
        {"max_predictions_per_seq": 0},
        {"max_seq_length": 4, "max_predictions_per_seq": 1},
        {"max_seq_length": 70_000},
        {"dupe_factor": 0},
        {"masked_lm_prob": 1.5},
        {"short_seq_prob": -0.1},
    ],
)
def test_settings_that_make_no_sense(settings):
    with pytest.raises(InputError, match="--" + next(iter(settings))):
        small(**settings)


def test_more_files_than_records(tmp_path, inputs):
    path = tmp_path / "two.txt"
    path.write_text("ba be.\n\nbi bo.\n")
    with pytest.raises(InputError, match="names 9 files, but the text makes only"):
        pretraining_data.create(
            output_files=[str(tmp_path / f"x{i}") for i in range(9)],
            settings=small(),
            **{**inputs, "input_files": [str(path)]},
        )


def test_golden_records_and_ours_keep_the_same_rules(tmp_path, shared_data):
    vocab_file = shared_data / "vocab" / "uncased" / "vocab.txt"
    text = shared_data / "golden" / "sample_text.txt"
    settings = Settings(dupe_factor=5)
    out = str(tmp_path / "x")
    counts = []
    for seed in range(30):
        made = pretraining_data.create(
            [str(text)],
            str(vocab_file),
            [out],
            Settings(dupe_factor=5, random_seed=seed),
            token_cache=str(tmp_path / "cache"),
        )
        counts.append(made.records)
    documents = tokenized_documents([text], vocab_file)
    assert made.documents == len(documents)
    assert made.text_tokens == sum(map(len, documents))
    haystack = Haystack(documents)
    vocab = tokenization.load_vocab(str(vocab_file))
    ids = {"cls": vocab["[CLS]"], "sep": vocab["[SEP]"], "mask": vocab["[MASK]"]}
    golden_path = str(shared_data / "golden" / "sample_text_tf_examples.tfrecord")
    golden, ours = read([golden_path]), read([out])
    assert len(golden) == 60 and min(counts) <= 60 <= max(counts)
    inventories = []
    for features_of_all in (golden, ours):
        kept = [check_record(features, settings, haystack, **ids) for features in features_of_all]
        inventories.append(set(np.concatenate(kept).tolist()))
    # Trimming may cut off a rare token, nothing else.
    everything = {token for document in documents for token in document}
    for inventory in inventories:
        assert inventory <= everything and len(inventory) > 0.97 * len(everything)
    golden_shape, our_shape = records.peek(golden_path), records.peek(out)
    assert golden_shape.features == our_shape.features
    assert golden_shape.feature_names == our_shape.feature_names


def test_remote_files(tmp_path, inputs):
    tf = pytest.importorskip("tensorflow")
    remote = {"input_files": [], "token_cache": inputs["token_cache"], "vocab_file": "ram://data/vocab.txt"}
    tf.io.gfile.copy(inputs["vocab_file"], remote["vocab_file"], overwrite=True)
    for path in inputs["input_files"]:
        remote["input_files"].append("ram://data/" + os.path.basename(path))
        tf.io.gfile.copy(path, remote["input_files"][-1], overwrite=True)
    here = [str(tmp_path / name) for name in "xyz"]
    there = ["ram://out/" + name for name in "xyz"]
    made = pretraining_data.create(output_files=here, settings=small(), **inputs)
    for kept in (0, 3):
        again = pretraining_data.create(output_files=there, settings=small(), num_workers=2, **remote)
        assert (again.fingerprint, again.counts, again.kept) == (made.fingerprint, made.counts, kept)
    for local, far in zip(here, there):
        with tf.io.gfile.GFile(far, "rb") as f:
            assert f.read() == pathlib.Path(local).read_bytes()
        assert records.peek(far) == records.peek(local)
        assert pretraining_data.read_manifest(far) == pretraining_data.read_manifest(local)


def test_text_in_another_encoding_gives_the_same_records(tmp_path, shared_data):
    raw = shared_data / "corpus" / "zh_xiyouji.gb18030.txt"
    converted = tmp_path / "utf8.txt"
    converted.write_bytes(raw.read_bytes().decode("gb18030").encode())
    vocab_file = str(shared_data / "vocab" / "chinese" / "vocab.txt")
    outputs = []
    for path, encoding in ((raw, "gb18030"), (converted, "utf-8")):
        outputs.append(tmp_path / encoding)
        settings = Settings(dupe_factor=1, input_encoding=encoding)
        manifest = pretraining_data.create(
            [str(path)], vocab_file, [str(outputs[-1])], settings, token_cache=str(tmp_path / "cache")
        )
        assert manifest.records > 2000
    assert outputs[0].read_bytes() == outputs[1].read_bytes()
