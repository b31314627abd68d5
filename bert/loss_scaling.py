"""Dynamic loss scaling for float16, whose small gradients would be 0 without it.

Micikevicius et al., "Mixed Precision Training", https://arxiv.org/abs/1710.03740: the loss is multiplied by a scale
before it is differentiated, and the gradients are divided by it. The scale is doubled after `GROWTH_STEPS` steps
without a gradient that is not finite, and halved at one, when the step changes nothing.
"""

import tensorflow.compat.v1 as tf

from bert import replicas

INITIAL_SCALE = 2.0**15
GROWTH_STEPS = 2000
SCALE, GOOD_STEPS = "loss_scale/scale", "loss_scale/good_steps"


class LossScale:
    """The scale of a training, which is a part of its checkpoints, so that a resumed training repeats it.

    Attributes:
      value: the scale of the current step, a float32 scalar tensor.
    """

    def __init__(self):
        """Makes the variables."""
        self._scale = _variable(SCALE, tf.float32, INITIAL_SCALE)
        self._good_steps = _variable(GOOD_STEPS, tf.int32, 0)
        self.value = tf.convert_to_tensor(self._scale)

    def scaled(self, loss):
        """Returns the same loss, whose gradients come out multiplied by the scale."""
        scale = self.value

        @tf.custom_gradient
        def identity(x):
            return tf.identity(x), lambda dy: dy * scale

        return identity(loss)

    def usable(self, gradient_norm):
        """Whether a step with gradients of this global norm counts: a boolean scalar tensor.

        At scale 1 every step does: what is not finite then is no matter of float16.
        """
        return tf.math.is_finite(gradient_norm) | (self.value <= 1.0)

    def update(self, usable):
        """Returns the operation that adapts the scale to whether the step was usable."""
        good_steps = tf.where(usable, tf.convert_to_tensor(self._good_steps) + 1, 0)
        is_grown = good_steps >= GROWTH_STEPS
        scale = tf.where(usable, tf.where(is_grown, self.value * 2.0, self.value), tf.maximum(self.value / 2.0, 1.0))
        return tf.group(
            replicas.local_copy(self._scale).assign(scale),
            replicas.local_copy(self._good_steps).assign(tf.where(is_grown, 0, good_steps)),
        )


def _variable(name, dtype, value):
    return tf.get_variable(
        name, [], dtype, initializer=tf.constant_initializer(value), trainable=False, use_resource=True
    )
