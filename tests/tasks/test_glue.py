"""GLUE's tasks on their own files, and on rows in the form of those that are not at hand."""

import numpy as np
import pytest

from bert.errors import InputError
from bert.tasks import glue, tabular

PAIR = "sentence1\tsentence2"


def examples(task, path, split):
    return [(e.guid, e.text_a, e.text_b, e.label) for e in task.examples(str(path), split)]


def write(folder, name, *lines):
    path = folder / name
    path.parent.mkdir(exist_ok=True)
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


@pytest.mark.parametrize(
    "name, folder, split, count, first",
    [
        ("cola", "CoLA", "train", 8551, 1),
        ("CoLA", "CoLA", "dev", 1043, 1),
        ("cola", "CoLA", "test", 1063, None),
        ("SST-2", "SST-2", "dev", 872, 1),
        ("sst2", "SST-2", "test", 1821, None),
        ("mrpc", "MRPC", "train", 3668, 1),
        ("mrpc", "MRPC", "dev", 408, 1),
        ("mrpc", "MRPC", "test", 1725, None),
        ("sts-b", "STS-B", "train", 5749, 5.0),
        ("stsb", "STS-B", "test", 1379, None),
        ("rte", "RTE", "train", 2490, 1),
        ("rte", "RTE", "test", 3000, None),
        ("qnli", "QNLI", "dev", 5463, 0),
        ("wnli", "WNLI", "dev", 71, 0),
        ("ax", "diagnostic", "test", 1104, None),
    ],
)
def test_every_row_of_the_published_files_is_an_example(shared_data, name, folder, split, count, first):
    task = glue.find(name)()
    found = examples(task, task.find(str(shared_data / "glue" / folder), split), split)
    assert len(found) == count
    assert found[0][3] == first
    assert [guid for guid, *_ in found] == [str(i) for i in range(count)]


def test_mrpc_from_microsofts_files_is_that_of_glue(shared_data, tmp_path):
    folder = shared_data / "glue" / "MRPC"
    for name in ("msr_paraphrase_train.txt", "msr_paraphrase_test.txt", "dev_ids.tsv"):
        (tmp_path / name).symlink_to(folder / name)
    task = glue.Mrpc()
    for split in ("train", "dev", "test"):
        ours = examples(task, task.find(str(tmp_path), split), split)
        glues = examples(task, task.find(str(folder), split), split)
        assert [row[:3] for row in ours] == [row[:3] for row in glues]
        if split != "test":
            assert ours == glues


def test_mnli_by_name_and_by_position(tmp_path):
    header = f"index\ta\tb\tc\td\te\tf\tg\t{PAIR}\tlabel1\tgold_label"
    row = "7\t.\t.\t.\t.\t.\t.\t.\tS\tT\tneutral\tentailment"
    task = glue.find("MNLI")()
    assert examples(task, write(tmp_path, "dev_matched.tsv", header, row), "dev") == [("7", "S", "T", 1)]
    assert examples(task, write(tmp_path, "dev_mismatched.tsv", row), "dev") == [("0", "S", "T", 1)]
    assert [task.find(str(tmp_path), "dev", part)[-14:] for part in task.parts("dev")] == [
        "ev_matched.tsv",
        "mismatched.tsv",
    ]


def test_qqp_leaves_out_rows_cut_by_line_ends_but_never_in_a_test_set(tmp_path, caplog):
    lines = ["id\tqid1\tqid2\tquestion1\tquestion2\tis_duplicate", "1\t2\t3\tA?\tB?\t1", "1\t2\t3\tA", "?\tB?\t0"]
    assert examples(glue.Qqp(), write(tmp_path, "train.tsv", *lines), "train") == [("1", "A?", "B?", 1)]
    assert "train.tsv:3: 4 columns" in caplog.text
    with pytest.raises(InputError, match=r"test.tsv:3: 2 columns"):
        examples(glue.Qqp(), write(tmp_path, "test.tsv", "id\tquestion1\tquestion2", "1\tA\tB", "1\tA"), "test")


def test_xnli_in_a_language(tmp_path):
    write(tmp_path, "multinli/multinli.train.de.tsv", "premise\thypo\tlabel", "A\tB\tcontradictory", "A\tC\tneutral")
    header = f"language\tgold_label\ta\tb\tc\td\t{PAIR}"
    write(tmp_path, "xnli.dev.tsv", header, "fr\tneutral\t\t\t\t\tA\tB", "de\tentailment\t\t\t\t\tC\tD")
    task = glue.Xnli(language="de")
    assert examples(task, task.find(str(tmp_path), "train"), "train") == [("0", "A", "B", 0), ("1", "A", "C", 2)]
    assert examples(task, task.find(str(tmp_path), "dev"), "dev") == [("0", "C", "D", 1)]
    with pytest.raises(InputError, match="no row in the language 'sw'"):
        examples(glue.Xnli(language="sw"), task.find(str(tmp_path), "dev"), "dev")


def test_errors_name_the_place_and_what_is_allowed(tmp_path):
    path = write(tmp_path, "train.tsv", f"index\t{PAIR}\tlabel", "0\tA\tB\tentailment", "1\tA\tB\tyes")
    with pytest.raises(
        InputError, match=r"train.tsv:3, column 'label': label 'yes' is unknown; allowed are 'entailment', 'not_ent"
    ):
        examples(glue.Rte(), path, "train")
    path = write(tmp_path, "dev.tsv", f"{PAIR}\tscore", "A\tB\tnan")
    with pytest.raises(InputError, match=r"dev.tsv:2, column 'score': 'nan' is not a number"):
        examples(glue.StsB(), path, "dev")
    with pytest.raises(
        InputError, match=r"no msr_paraphrase_test.txt|no test.tsv or msr.*The folder has dev.tsv, train"
    ):
        glue.Mrpc().find(str(tmp_path), "test")
    with pytest.raises(InputError, match="train a model on mnli"):
        glue.Ax().find(str(tmp_path), "train")


def test_a_label_by_another_header_is_told(tmp_path):
    path = write(tmp_path, "train.tsv", "source\tacceptable\tmark\ttext", "gj04\t1\t\tA.")
    with pytest.raises(InputError, match=r"train.tsv:1, column 'label': label 'acceptable' is unknown"):
        examples(glue.Cola(), path, "train")


def test_scores_are_those_of_glue():
    outputs = np.array([[0.9, 0.1], [0.2, 0.8], [0.4, 0.6], [0.7, 0.3]])
    labels = np.array([0, 1, 0, 0])
    # One true positive, one false positive, no false negative.
    assert glue.Mrpc().scores(labels, outputs) == pytest.approx({"eval_accuracy": 0.75, "f1": 2 / 3})
    # (1 * 2 - 1 * 0) / sqrt(2 * 1 * 3 * 2)
    assert glue.Cola().scores(labels, outputs)["matthews_correlation"] == pytest.approx(2 / 12**0.5)
    same = np.array([[0.9, 0.1]] * 4)
    assert glue.Cola().scores(labels, same)["matthews_correlation"] == 0
    assert glue.Mrpc().scores(labels, same)["f1"] == 0
    scores = glue.StsB().scores(np.array([0.0, 1.0, 2.0, 5.0]), np.array([[0.0], [1.0], [3.0], [4.0]]))
    assert scores == pytest.approx({"pearson": 11 / 140**0.5, "spearman": 1.0})
    assert glue.StsB().submission_value(np.array([5.3])) == "5.000"
    assert glue.Rte().submission_value(np.array([0.3, 0.7])) == "not_entailment"


def test_your_own_tables(tmp_path):
    path = write(tmp_path, "train.csv", "text,kind", '"a, b",9', "c,10", "d,9")
    task = tabular.Tabular(label_column="kind")
    task.find_labels(str(path))
    assert task.labels == ("9", "10")
    assert examples(task, path, "train") == [("0", "a, b", None, 0), ("1", "c", None, 1), ("2", "d", None, 0)]
    assert examples(task, write(tmp_path, "test.tsv", "id\ttext", "x\ta"), "test") == [("x", "a", None, None)]


def test_several_labels_and_numbers(tmp_path):
    path = write(tmp_path, "train.jsonl", '{"text": "a", "labels": ["x", "y"]}', '{"text": "b", "labels": []}')
    task = tabular.Tabular(label_kind="multi")
    task.find_labels(str(path))
    assert [label for *_, label in examples(task, path, "train")] == [[1, 1], [0, 0]]
    path = write(tmp_path, "train.tsv", "text\tlabels", "a\ty, x", "b\t", "c\ty")
    assert [label for *_, label in examples(task, path, "train")] == [[1, 1], [0, 0], [0, 1]]
    outputs = np.array([[0.9, 0.1], [0.6, 0.6]])
    assert [task.describe(row) for row in task.decide(outputs)] == ["x", "x,y"]
    assert task.scores(np.array([[1, 0], [1, 0]]), outputs)["eval_accuracy"] == 0.5
    number = tabular.Tabular(label_kind="regression")
    number.find_labels(str(path))
    assert number.num_outputs == 1


def test_what_is_a_pair_in_training_is_one_everywhere(tmp_path):
    pairs = tabular.Tabular()
    pairs.find_labels(str(write(tmp_path, "train.tsv", "text_a\ttext_b\tlabel", "a\tb\tx", "a\tc\ty")))
    assert pairs.settings()["is_pair"] is True
    with pytest.raises(InputError, match=r"dev.tsv:1: no column named text_b or sentence2; the first line has 2 col"):
        list(pairs.examples(str(write(tmp_path, "dev.tsv", "text\tlabel", "a\tx")), "dev"))
    single = tabular.Tabular()
    single.find_labels(str(write(tmp_path, "train.tsv", "text\tlabel", "a\tx", "b\ty")))
    path = write(tmp_path, "dev.tsv", "sentence1\tsentence2\tlabel", "a\tb\tx")
    assert next(single.examples(str(path), "dev")).text_b is None
