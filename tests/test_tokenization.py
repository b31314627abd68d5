"""The reference tokenization by examples, and by what the original made of whole corpora."""

import os
import pathlib
import subprocess
import sys

import pytest

from bert import tokenization
from bert.errors import InputError

ROOT = pathlib.Path(__file__).resolve().parents[1]


@pytest.fixture
def vocab_file(tmp_path):
    """Writes a small vocabulary."""
    path = tmp_path / "vocab.txt"
    path.write_text("\n".join(["[UNK]", "[CLS]", "pre", "##train", "##ed", "##ing", "cafe", "!", "on"]) + "\n")
    return str(path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", []),
        (" \t\r\n\u00a0\u3000\u2028 ", []),
        ("Hello, World!", ["hello", ",", "world", "!"]),
        ("it's $5^2 a_b", ["it", "'", "s", "$", "5", "^", "2", "a", "_", "b"]),
        ("[MASK] [SEP]", ["[", "mask", "]", "[", "sep", "]"]),
        ("Ça va? Ångström naïve", ["ca", "va", "?", "angstrom", "naive"]),
        ("東京to大阪", ["東", "京", "to", "大", "阪"]),
        ("ひらがな カタカナ", ["ひらかな", "カタカナ"]),
        ("각", ["\u1100\u1161\u11a8"]),  # syllables are decomposed to letters
        ("\U00020000\U0002b820\uf900", ["\U00020000", "\U0002b820", "\u8c48"]),
        ("a\u0000b\ufffdc\u200bd\u00ade\u0085f\u000bg", ["abcdefg"]),
        ("ΟΔΟΣ ΣΑΣ Σ", ["οδος", "σας", "σ"]),
        ("İI", ["ii"]),
        ("≠;", ["=", ";"]),
        ("x\u2014y\u3002z\u00bf", ["x", "\u2014", "y", "\u3002", "z", "\u00bf"]),
        ("\ue000 \U000e0fff \u0378", ["\ue000", "\U000e0fff", "\u0378"]),
    ],
)
def test_basic_tokenizer_lower_cases_and_strips_accents(text, words):
    assert tokenization.BasicTokenizer().tokenize(text) == words


def test_case_and_accents_are_separate_choices():
    text = "Éa Ñ"
    assert tokenization.BasicTokenizer(False).tokenize(text) == ["Éa", "Ñ"]
    assert tokenization.BasicTokenizer(True).tokenize(text) == ["ea", "n"]
    assert tokenization.BasicTokenizer(True, strip_accents=False).tokenize(text) == ["éa", "ñ"]
    assert tokenization.BasicTokenizer(False, strip_accents=True).tokenize(text) == ["Ea", "N"]


def test_basic_tokenizer_takes_bytes():
    assert tokenization.BasicTokenizer().tokenize("Ü a\xff".encode("latin-1") + b"\xc3\x9c") == ["au"]


def test_wordpiece_is_greedy_and_gives_up_on_whole_words():
    vocab = {"[UNK]", "un", "una", "##aff", "##ffa", "##able", "##ble", "a"}
    split = tokenization.WordpieceTokenizer(vocab).tokenize
    assert split("unaffable") == ["una", "##ffa", "##ble"]
    assert split("unaffablex a") == ["[UNK]", "a"]
    assert split("") == []


def test_words_of_more_than_200_characters_are_unknown():
    split = tokenization.WordpieceTokenizer({"a", "##a"}).tokenize
    assert split("a" * 200) == ["a"] + ["##a"] * 199
    assert split("a" * 201) == ["[UNK]"]
    assert tokenization.WordpieceTokenizer({"a"}, "?", 3).tokenize("aaaa") == ["?"]


def test_full_tokenizer(vocab_file):
    tokenizer = tokenization.FullTokenizer(vocab_file)
    tokens = tokenizer.tokenize("PRETRAINED on Café!ing")
    assert tokens == ["pre", "##train", "##ed", "on", "cafe", "!", "[UNK]"]
    ids = tokenizer.convert_tokens_to_ids(tokens)
    assert ids == [2, 3, 4, 8, 6, 7, 0]
    assert tokenizer.convert_ids_to_tokens(ids) == tokens
    assert tokenization.FullTokenizer(vocab_file, do_lower_case=False).tokenize("Pre") == ["[UNK]"]


def test_convert_to_unicode():
    assert tokenization.convert_to_unicode("é") == "é"
    assert tokenization.convert_to_unicode("é".encode() + b"\xff") == "é"
    assert tokenization.printable_text(b"x") == "x"
    with pytest.raises(ValueError, match="not int: 3"):
        tokenization.convert_to_unicode(3)


def test_vocabulary_lines_end_at_newlines_only(tmp_path):
    path = tmp_path / "vocab.txt"
    path.write_bytes("\ufeff[UNK]\r\n a \r\n\u2028\n##\u2028\n\x85\nb".encode())
    vocab = tokenization.load_vocab(str(path))
    assert list(vocab.items()) == [("[UNK]", 0), ("a", 1), ("", 4), ("##", 3), ("b", 5)]


def test_of_a_repeated_token_the_last_id_counts(tmp_path, caplog):
    path = tmp_path / "vocab.txt"
    path.write_text("a\nb\na\n")
    assert tokenization.load_vocab(str(path)) == {"a": 2, "b": 1}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        (b"", "empty"),
        (b"\n\n", "empty"),
        (b"a\n\xff\n", "line 2: not UTF-8"),
        (b"a\n", r"no \[UNK\], \[MASK\] among its 1 lines"),
    ],
)
def test_unusable_vocabularies(tmp_path, content, message):
    path = tmp_path / "vocab.txt"
    path.write_bytes(content)
    with pytest.raises(InputError, match=message):
        tokenization.load_vocab(str(path), required=["[UNK]", "[MASK]"])


def test_missing_vocabulary(tmp_path):
    with pytest.raises(InputError, match=r"No vocabulary .*none\.txt"):
        tokenization.load_vocab(str(tmp_path / "none.txt"))


def test_validate_case_matches_checkpoint():
    check = tokenization.validate_case_matches_checkpoint
    check(True, None)
    check(False, "gs://b/my_model/bert_model.ckpt")
    check(True, "gs://b/uncased_L-12_H-768_A-12/bert_model.ckpt")
    check(False, "/x/multi_cased_L-12_H-768_A-12/bert_model.ckpt")
    with pytest.raises(InputError, match="Give --do_lower_case=True"):
        check(False, "gs://b/chinese_L-12_H-768_A-12/bert_model.ckpt")
    with pytest.raises(InputError, match="Give --do_lower_case=False"):
        check(True, "/x/cased_L-12_H-768_A-12/bert_model.ckpt")


@pytest.mark.parametrize(("name", "size", "mask"), [("uncased", 30522, 103), ("chinese", 21128, 103)])
def test_released_vocabularies(shared_data, name, size, mask):
    path = str(shared_data / "vocab" / name / "vocab.txt")
    vocab = tokenization.load_vocab(path, required=["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])
    assert (len(vocab), vocab["[PAD]"], vocab["[MASK]"]) == (size, 0, mask)
    assert list(vocab.values()) == list(range(size))


def test_data_code_runs_without_tensorflow_and_in_a_locale_without_unicode(tmp_path):
    (tmp_path / "vocab.txt").write_text("\u00e9\n\u4e2d\n", encoding="utf-8")
    (tmp_path / "x.tsv").write_text("text\tlabel\n\u00e9\t\u4e2d\n", encoding="utf-8")
    code = (
        "import sys, bert.data.wordpiece, bert.data.text, bert.data.vocabulary\n"
        "from bert import files, tokenization\n"
        "from bert.tasks import tables\n"
        "assert 'utf' not in __import__('locale').getpreferredencoding(False).lower()\n"
        "vocab = tokenization.load_vocab('vocab.txt')\n"
        "((_, row),) = tables.read('x.tsv', {'text': ('text',), 'label': ('label',)})\n"
        "assert [vocab[row['text']], vocab[row['label']]] == [0, 1]\n"
        "files.open_file('out.tsv', 'w').write(row['label'])\n"
        "assert 'tensorflow' not in sys.modules\n"
    )
    ascii_only = {"LC_ALL": "C", "PYTHONCOERCECLOCALE": "0", "PYTHONUTF8": "0", "PYTHONPATH": str(ROOT)}
    subprocess.run([sys.executable, "-c", code], cwd=tmp_path, env={**os.environ, **ascii_only}, check=True)
    assert (tmp_path / "out.tsv").read_text(encoding="utf-8") == "\u4e2d"
