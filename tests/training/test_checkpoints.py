"""What an initial checkpoint gives to a model, and when it is refused."""

import pytest
import tensorflow.compat.v1 as tf

from bert.errors import InputError
from bert.training import checkpoints


@pytest.fixture
def checkpoint(tmp_path):
    """A checkpoint with two weights, an optimizer slot and the global step."""
    with tf.Graph().as_default(), tf.Session() as session:
        for name, shape in (("a", [2, 3]), ("b", [4]), ("a/adam_m", [2, 3]), ("head", [1])):
            tf.get_variable(name, shape)
        tf.train.create_global_step()
        session.run(tf.global_variables_initializer())
        return tf.train.Saver().save(session, str(tmp_path / "model.ckpt"), global_step=7, write_meta_graph=False)


def test_what_matches_is_listed(checkpoint):
    plan = checkpoints.plan_initialisation(checkpoint, {"a": [2, 3], "b": [4], "c": [1]})
    assert (plan.matched, plan.new, plan.unused) == (("a", "b"), ("c",), ("head",))


def test_shapes_that_differ_are_refused(checkpoint):
    with pytest.raises(InputError, match=r"a has shape \[2, 3\] there but \[3, 2\] in this model"):
        checkpoints.plan_initialisation(checkpoint, {"a": [3, 2]})


def test_a_checkpoint_of_something_else_is_refused(checkpoint):
    with pytest.raises(InputError, match="none of its 5 variables is in this model"):
        checkpoints.plan_initialisation(checkpoint, {"x": [1]})


def test_the_newest_checkpoint_and_its_step(checkpoint, tmp_path):
    assert checkpoints.latest(str(tmp_path)) == (checkpoint, 7)
    assert checkpoints.latest(str(tmp_path / "nowhere")) == (None, 0)


def test_no_checkpoint_there(tmp_path):
    with pytest.raises(InputError, match=r"--init_checkpoint=.*nothing: no TensorFlow checkpoint can be read there"):
        checkpoints.plan_initialisation(str(tmp_path / "nothing"), {"a": [1]})
