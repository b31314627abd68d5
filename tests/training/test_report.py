"""What a person is shown of a run: the report, the plot, and the lines of the state."""

import datetime
import html.parser
import json

import pytest
import tensorflow.compat.v1 as tf

from bert.errors import InputError
from bert.training import checkpoints, evaluations, report, run_folder


@pytest.fixture
def folder(tmp_path):
    """The folder of a run of 100 steps that was killed after step 40 and made steps 31 to 40 once more."""
    for first, last in ((1, 40), (31, 100)):
        with tf.Graph().as_default(), tf.summary.FileWriter(str(tmp_path), filename_suffix=f".{first}") as writer:
            for step in range(first, last + 1, 5):
                values = {
                    "loss": 5.0 - step / 50 + (first == 1),
                    "masked_lm_accuracy": step / 200,
                    "gradient_norm": 1e-7,
                }
                summary = tf.Summary(value=[tf.Summary.Value(tag=k, simple_value=v) for k, v in values.items()])
                writer.add_summary(summary, step)
    record = {
        "status": "running",
        "host": "machine",
        "start": "2026-01-01T00:00:00+00:00",
        "settings": {
            "num_train_steps": 100,
            "train_batch_size": 8,
            "phases": [{"last_step": 100, "max_seq_length": 32}],
            "model": {"hidden_size": 32},
        },
        "data": [{"files": 1, "records": 50, "fingerprint": "abc"}],
        "step": 96,
        "metrics": {"loss": 3.08, "examples_per_second": 16.0},
        "last_checkpoint": {"step": 90, "time": "2026-01-01T00:59:00+00:00"},
        "starts": [{"time": "t0", "step": 0}, {"time": "t1", "step": 30, "run_before": "killed"}],
        "flags": {"input_file": "<script>alert(1)</script>"},
    }
    (tmp_path / "run.json").write_text(json.dumps(record))
    (tmp_path / "eval_results.txt").write_text("global_step = 100\nloss = 3.5\nmasked_lm_accuracy = 0.4\n")
    (tmp_path / "evaluations.jsonl").write_text('{"global_step": 50, "loss": 4.5}\n')
    return tmp_path


class Page(html.parser.HTMLParser):
    """Collects the tags of a page and checks that they are closed."""

    def __init__(self, text):
        super().__init__()
        self.open, self.tags = [], []
        self.feed(text)
        assert not self.open

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag != "meta":
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert self.open.pop() == tag


def test_the_report_stands_alone_and_shows_every_curve(folder):
    text = (folder / "report.html").read_text() if report.write(str(folder)) else ""
    page = Page(text)
    assert [attributes["aria-label"] for tag, attributes in page.tags if tag == "svg"] == [
        "loss by step",
        "masked lm accuracy by step",
        "gradient norm by step",
    ]
    assert not [value for _, attributes in page.tags for key, value in attributes.items() if key in ("src", "href")]
    assert "http" not in text and "<script>" not in text and "&lt;script&gt;" in text
    assert "prefers-color-scheme: dark" in text and "width=device-width" in text
    assert "step 30" in text and "the run before was killed" in text
    assert (folder / "loss.png").read_bytes().startswith(b"\x89PNG")


def test_steps_that_were_made_again_count_once(folder):
    loss = dict(report.read_curves(str(folder))["loss"])
    assert loss[1] == pytest.approx(6 - 1 / 50) and loss[36] == pytest.approx(5 - 36 / 50)
    assert sorted(loss) == [*range(1, 31, 5), *range(31, 100, 5)]


def test_a_folder_without_curves_has_a_report_too(tmp_path):
    (tmp_path / "run.json").write_text("{}")
    Page((tmp_path / "report.html").read_text() if report.write(str(tmp_path)) else "")


def test_the_state_in_a_few_lines(folder):
    now = datetime.datetime(2026, 1, 1, 1, tzinfo=datetime.timezone.utc)
    lines = run_folder.describe(str(folder), now)
    assert lines == [
        f"{folder}: killed",  # no process holds its lock
        "step 96 of 100 (96.0 %), loss 3.0800",
        "last checkpoint: step 90, 1:00 ago",
        "restarts: 1, at step 30 (killed)",
        "evaluation: global_step 100, loss 3.5, masked_lm_accuracy 0.4",
    ]
    assert run_folder.describe(str(folder / "nowhere")) == []


@pytest.mark.parametrize("step, every, last, pause", [(0, 3, 8, 3), (3, 3, 8, 6), (7, 3, 8, 8), (5, None, 8, 8)])
def test_pauses(step, every, last, pause):
    assert evaluations.next_pause(step, every, last) == pause


def test_the_mean_of_the_last_checkpoints(tmp_path):
    with tf.Graph().as_default(), tf.Session() as session:
        weights = tf.get_variable("weights", [2])
        saver = tf.train.Saver()
        for step in (9, 10, 11):
            weights.load([step, -step], session)
            saver.save(session, str(tmp_path / "model.ckpt"), global_step=step)
    prefixes = checkpoints.newest(str(tmp_path), 2)
    assert prefixes == [str(tmp_path / "model.ckpt-10"), str(tmp_path / "model.ckpt-11")]
    assert checkpoints.average(prefixes, ["weights"])["weights"].tolist() == [10.5, -10.5]
    with pytest.raises(InputError, match=r"has 3 checkpoints .* not 4"):
        checkpoints.newest(str(tmp_path), 4)
