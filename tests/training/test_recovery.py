"""Which checkpoint a training goes on from when files are damaged, lost or left half-written."""

import pytest
import tensorflow.compat.v1 as tf

from bert.errors import InputError
from bert.training import checkpoints

VARIABLES = {"weights": [100, 3]}


@pytest.fixture
def folder(tmp_path):
    """A folder with checkpoints of the steps 4 and 8, as a training leaves them."""
    with tf.Graph().as_default(), tf.Session() as session:
        for name in ("weights", "weights/adam_m", "weights/adam_v"):
            tf.get_variable(name, [100, 3])
        step = tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        saver = tf.train.Saver(sharded=True, save_relative_paths=True)
        for number in (4, 8):
            session.run(step.assign(number))
            saver.save(session, str(tmp_path / "model.ckpt"), global_step=number)
    return tmp_path


def cut(path, size):
    path.write_bytes(path.read_bytes()[:size])


def flip(path, position):
    content = bytearray(path.read_bytes())
    content[position] ^= 1
    path.write_bytes(content)


@pytest.mark.parametrize(
    "harm",
    [
        lambda folder: cut(folder / "model.ckpt-8.data-00000-of-00001", 500),
        lambda folder: cut(folder / "model.ckpt-8.data-00000-of-00001", 0),
        lambda folder: flip(folder / "model.ckpt-8.data-00000-of-00001", 700),
        lambda folder: (folder / "model.ckpt-8.data-00000-of-00001").unlink(),
        lambda folder: cut(folder / "model.ckpt-8.index", 60),
        lambda folder: cut(folder / "model.ckpt-8.index", 0),
        lambda folder: flip(folder / "model.ckpt-8.index", 20),
    ],
    ids=["data cut", "data empty", "data changed", "data lost", "index cut", "index empty", "index changed"],
)
def test_a_damaged_checkpoint_is_set_aside(folder, harm, caplog):
    harm(folder)
    assert checkpoints.recover(str(folder), VARIABLES) == (str(folder / "model.ckpt-4"), 4)
    assert not list(folder.glob("model.ckpt-8*")) and list(folder.glob("damaged-model.ckpt-8.*"))
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-4")
    lines = [record.getMessage() for record in caplog.records if "set aside" in record.getMessage()]
    assert len(lines) == 1 and lines[0].endswith("set aside as damaged-model.ckpt-8")
    assert checkpoints.recover(str(folder), VARIABLES)[1] == 4


def test_weights_that_are_no_numbers_count_as_damage(folder, caplog):
    with tf.Graph().as_default(), tf.Session() as session:
        for name in ("weights", "weights/adam_m", "weights/adam_v"):
            tf.get_variable(name, [100, 3], initializer=tf.constant_initializer(float("nan")))
        session.run([tf.global_variables_initializer(), tf.train.create_global_step().initializer])
        tf.train.Saver().save(session, str(folder / "model.ckpt-8"), write_state=False)
    assert checkpoints.recover(str(folder), VARIABLES)[1] == 4
    assert "not finite" in caplog.text


@pytest.mark.parametrize(
    "content", [None, b"", b"model_checkp", b'model_checkpoint_path: "model.ckpt-12"\n', b"\0\xff"]
)
def test_without_a_state_file_the_folder_tells(folder, content):
    if content is None:
        (folder / "checkpoint").unlink()
    else:
        (folder / "checkpoint").write_bytes(content)
    assert checkpoints.recover(str(folder), VARIABLES)[1] == 8
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-8")
    state = tf.train.get_checkpoint_state(str(folder))
    assert [path[-1] for path in state.all_model_checkpoint_paths] == ["4", "8"]


BEFORE = 'model_checkpoint_path: "model.ckpt-4"\nall_model_checkpoint_paths: "model.ckpt-4"\n'


def test_a_whole_checkpoint_that_the_state_file_does_not_list_yet_is_gone_on_from(folder, caplog):
    (folder / "checkpoint").write_text(BEFORE)  # killed before this was written anew
    assert checkpoints.recover(str(folder), VARIABLES)[1] == 8
    assert "does not name model.ckpt-8 yet" in caplog.text
    assert tf.train.latest_checkpoint(str(folder)) == str(folder / "model.ckpt-8")
    state = tf.train.get_checkpoint_state(str(folder))
    assert [path[-1] for path in state.all_model_checkpoint_paths] == ["4", "8"]


def test_one_that_is_not_whole_or_of_another_model_is_not(folder):
    (folder / "checkpoint").write_text(BEFORE)
    content = (folder / "model.ckpt-8.data-00000-of-00001").read_bytes()
    cut(folder / "model.ckpt-8.data-00000-of-00001", 500)
    assert checkpoints.recover(str(folder), VARIABLES)[1] == 4
    (folder / "model.ckpt-8.data-00000-of-00001").write_bytes(content)
    (folder / "model.ckpt-8.index").rename(folder / "hidden")  # the last file of a checkpoint that is written
    assert checkpoints.recover(str(folder), VARIABLES)[1] == 4
    with tf.Graph().as_default(), tf.Session() as session:
        tf.get_variable("other", [1])
        session.run([tf.global_variables_initializer(), tf.train.create_global_step().initializer])
        tf.train.Saver().save(session, str(folder / "model.ckpt-8"), write_state=False)
    assert checkpoints.recover(str(folder), VARIABLES)[1] == 4
    assert (folder / "checkpoint").read_text() == BEFORE and list(folder.glob("model.ckpt-8.*"))


@pytest.mark.parametrize("more", ["", 'all_model_checkpoint_paths: "model.ckpt-8"\n'])
def test_an_older_checkpoint_named_by_hand_is_respected(folder, more):
    (folder / "checkpoint").write_text(f'model_checkpoint_path: "model.ckpt-4"\n{more}')
    assert checkpoints.recover(str(folder), VARIABLES)[1] == 4
    assert list(folder.glob("model.ckpt-8.index"))


def test_when_nothing_is_left_training_begins_anew(folder, caplog):
    for step in (4, 8):
        cut(folder / f"model.ckpt-{step}.index", 10)
    assert checkpoints.recover(str(folder), VARIABLES) == (None, 0)
    assert tf.train.latest_checkpoint(str(folder)) is None
    assert "training begins anew" in caplog.text


def test_half_written_files_are_removed(folder):
    (folder / "model.ckpt-12_temp").mkdir()
    (folder / "model.ckpt-12_temp" / "part-00000-of-00001.data-00000-of-00001").write_text("x")
    assert checkpoints.recover(str(folder), VARIABLES)[1] == 8
    assert not list(folder.glob("model.ckpt-12*"))


@pytest.mark.parametrize("variables", [{"weights": [3, 100]}, {"other": [1]}])
def test_a_whole_checkpoint_of_another_model_is_an_error_and_stays(folder, variables):
    with pytest.raises(InputError, match=r"model.ckpt-8 (has|lacks) (weights|other).* It belongs to another model"):
        checkpoints.recover(str(folder), variables)
    assert list(folder.glob("model.ckpt-8.index"))


def test_a_new_folder_has_no_checkpoint(tmp_path):
    assert checkpoints.recover(str(tmp_path / "nothing"), VARIABLES) == (None, 0)
