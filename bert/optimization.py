"""The optimizers of BERT, AdamW and LAMB: gradient clipping, linear warmup, polynomial decay, weight decay."""

import math
import re

import tensorflow.compat.v1 as tf

from bert import replicas

CLIP_NORM = 1.0
ADAMW = "adamw"
# Graph collections of scalar tensors, for summaries.
GRADIENT_NORM = "bert/gradient_norm"
LEARNING_RATE = "bert/learning_rate"


def create_optimizer(loss, init_lr, num_train_steps, num_warmup_steps, use_tpu, **more):
    """Returns the operation of one training step on all trainable variables.

    Args:
      loss: scalar tensor. Across replicas, the mean of their losses is minimised.
      init_lr: peak learning rate.
      num_train_steps: number of steps after which the learning rate is 0.
      num_warmup_steps: number of steps over which the learning rate rises from 0; 0 or None for no warmup.
      use_tpu: ignored, since the graph itself tells how many replicas there are.
      **more: further arguments of `training_step`.

    Returns:
      An operation that updates the variables and then adds 1 to the global step.
    """
    del use_tpu
    return training_step(loss, dense_gradients(loss), init_lr, num_train_steps, num_warmup_steps, **more)


def training_step(
    loss,
    grads_and_vars,
    init_lr,
    num_train_steps,
    num_warmup_steps,
    end_lr=0.0,
    power=1.0,
    first_step=0,
    optimizer=ADAMW,
    layerwise_lr_decay=1.0,
    loss_scale=None,
    **hyperparameters,
):
    """Returns the operation of one training step with given gradients.

    Gradients are averaged over the replicas first and clipped then, to a global norm of 1, so that a step
    does not depend on how many cores share its batch. (The original clips on each core and applies the sum.)
    A gradient that is not finite makes every variable NaN, and so the next loss: nothing is skipped, unless a
    `loss_scale` says so. A step that is skipped changes nothing but the scale and the global step.

    The gradient's norm before clipping and the learning rate are added to the graph collections
    `GRADIENT_NORM` and `LEARNING_RATE`; across replicas, every one computes the same.

    Args:
      loss: scalar tensor, computed before any variable changes.
      grads_and_vars: pairs of gradient and variable.
      init_lr, num_train_steps, num_warmup_steps, end_lr, power: as of `learning_rate_at`.
      first_step: global step at which that schedule begins.
      optimizer: one of `OPTIMIZERS`.
      layerwise_lr_decay: factor of the learning rate from each layer of the encoder to the one below it; what is above
        the encoder has the full rate (ELECTRA, https://openreview.net/forum?id=r1xMH1BtvB).
      loss_scale: the `loss_scaling.LossScale` that the gradients are scaled by, or None.
      **hyperparameters: weight_decay_rate, beta_1, beta_2 and epsilon of the optimizer.

    Returns:
      An operation that updates the variables and then adds 1 to the global step.
    """
    global_step = tf.train.get_or_create_global_step()
    learning_rate = _learning_rate(global_step, first_step, init_lr, num_train_steps, num_warmup_steps, end_lr, power)
    gradients, variables = zip(*grads_and_vars)
    rate_scales = None
    if layerwise_lr_decay != 1.0:
        rate_scales = _layerwise_scales(
            [re.sub(r":\d+$", "", variable.name) for variable in variables], layerwise_lr_decay
        )
    kind, options = _OPTIMIZERS[optimizer]
    step = kind(
        learning_rate=learning_rate,
        exclude_from_weight_decay=["LayerNorm", "layer_norm", "bias"],
        rate_scales=rate_scales,
        **{"weight_decay_rate": 0.01, **options, **hyperparameters},
    )
    gradients = replicas.mean(list(gradients))
    gradient_norm = tf.global_norm(gradients)
    updates, usable, unscale = [], None, 1.0
    if loss_scale:
        unscale = 1.0 / loss_scale.value
        usable = loss_scale.usable(gradient_norm)
        gradient_norm = tf.where(usable, gradient_norm * unscale, tf.zeros_like(gradient_norm))
        updates.append(loss_scale.update(usable))
    tf.add_to_collection(GRADIENT_NORM, gradient_norm)
    tf.add_to_collection(LEARNING_RATE, learning_rate)

    scale = _clip_scale(gradient_norm) * unscale
    updates.append(step.apply_gradients(zip(gradients, variables), gradient_scale=scale, usable=usable))
    # The step is a part of every dropout's seed and of the learning rate, so it must change after all reads.
    with tf.control_dependencies([*updates, loss]):
        return tf.group(global_step.assign_add(1))


def learning_rate_at(step, init_lr, num_train_steps, num_warmup_steps, end_lr=0.0, power=1.0):
    """Returns the learning rate of a step (counted from 0) as the graph computes it.

    During warmup it is init_lr * step / num_warmup_steps. That replaces the decay,
    end_lr + (init_lr - end_lr) * (1 - step / num_train_steps) ** power, which has gone on meanwhile: when warmup
    ends, the rate drops to it.
    """
    if num_warmup_steps and step < num_warmup_steps:
        return init_lr * step / num_warmup_steps
    return end_lr + (init_lr - end_lr) * ((num_train_steps - min(step, num_train_steps)) / num_train_steps) ** power


def _learning_rate(global_step, first_step, init_lr, num_train_steps, num_warmup_steps, end_lr, power):
    """`learning_rate_at` as a float32 scalar tensor; differences of steps are taken in integers."""
    step = tf.maximum(tf.cast(tf.convert_to_tensor(global_step), tf.int32) - first_step, 0)
    share_left = tf.cast(num_train_steps - tf.minimum(step, num_train_steps), tf.float32) / num_train_steps
    learning_rate = end_lr + (init_lr - end_lr) * (share_left if power == 1.0 else tf.pow(share_left, power))
    if num_warmup_steps:
        warmup_learning_rate = init_lr * tf.cast(step, tf.float32) / num_warmup_steps
        learning_rate = tf.where(step < num_warmup_steps, warmup_learning_rate, learning_rate)
    return learning_rate


def _layerwise_scales(names, decay):
    """Dict from the names of variables to the factors of their learning rates."""
    layers = {name: int(found.group(1)) for name in names if (found := re.search(r"/layer_(\d+)/", name))}
    top = max(layers.values(), default=-1) + 1
    heights = {name: -1 for name in names if "/embeddings/" in name} | layers
    return {name: decay ** (top - height) for name, height in heights.items()}


def dense_gradients(loss):
    """Returns pairs of gradient and variable, for the trainable variables that the loss depends on.

    The gradient of a gather is a list of rows in which a token has a row for each of its occurrences. Only
    their sums make a norm that means something, and Adam moves every row of the table anyway.
    """
    variables = tf.trainable_variables()
    gradients = tf.gradients(loss, variables)
    return [
        (tf.convert_to_tensor(gradient), variable)
        for gradient, variable in zip(gradients, variables)
        if gradient is not None
    ]


def _clip_scale(norm):
    """What gradients of this global norm are multiplied by; NaN if the norm is not finite."""
    return CLIP_NORM / tf.maximum(norm, CLIP_NORM) + (norm - norm)


class AdamWeightDecayOptimizer(tf.train.Optimizer):
    """Adam (https://arxiv.org/abs/1412.6980) with decoupled weight decay (https://arxiv.org/abs/1711.05101).

    As BERT was trained with: there is no bias correction, and the decay is multiplied by the learning rate:

        m <- beta_1 m + (1 - beta_1) g
        v <- beta_2 v + (1 - beta_2) g^2
        w <- w - learning_rate (m / (sqrt(v) + epsilon) + weight_decay_rate w)

    The slots m and v are the variables "<variable>/adam_m" and "<variable>/adam_v".
    """

    _is_plain = True  # not a subclass with another step

    def __init__(
        self,
        learning_rate,
        weight_decay_rate=0.0,
        beta_1=0.9,
        beta_2=0.999,
        epsilon=1e-6,
        exclude_from_weight_decay=None,
        name="AdamWeightDecayOptimizer",
        rate_scales=None,
    ):
        """Makes an optimizer.

        Args:
          learning_rate: float or scalar tensor.
          weight_decay_rate: share of a weight that is subtracted, times the learning rate.
          beta_1: decay of the first moment.
          beta_2: decay of the second moment.
          epsilon: added to the root of the second moment.
          exclude_from_weight_decay: regular expressions; variables in whose name one is found do not decay.
          name: name of the optimizer.
          rate_scales: dict from names of variables to factors of their learning rates, where they are not 1.
        """
        super().__init__(False, name)
        self._rate_scales = rate_scales or {}
        self.learning_rate = learning_rate
        self.weight_decay_rate = weight_decay_rate
        self.beta_1 = beta_1
        self.beta_2 = beta_2
        self.epsilon = epsilon
        self.exclude_from_weight_decay = exclude_from_weight_decay

    def apply_gradients(self, grads_and_vars, global_step=None, name=None, gradient_scale=1.0, usable=None):
        """Returns an operation that updates the variables.

        Args:
          grads_and_vars: pairs of gradient and variable. The gradients must be the same on every replica.
          global_step: ignored; it is the caller who adds 1 to it.
          name: name of the operation.
          gradient_scale: factor for all gradients. Given here it costs no pass over them.
          usable: boolean scalar tensor: if it is false, all variables stay as they are. None: true.
        """
        del global_step
        with tf.name_scope(name, self._name):
            updates = [
                self._update(tf.convert_to_tensor(gradient), variable, gradient_scale, usable)
                for gradient, variable in grads_and_vars
                if gradient is not None
            ]
            return tf.group(*updates)

    def _update(self, gradient, variable, gradient_scale, usable):
        name = re.sub(r":\d+$", "", variable.name)
        m, v = self._slot(name + "/adam_m", variable), self._slot(name + "/adam_v", variable)
        parameter, m, v = (replicas.local_copy(x) for x in (variable, m, v))
        if self._is_plain and usable is None and hasattr(parameter, "handle") and not replicas.on_tpu():
            return self._fused_update(name, gradient * gradient_scale, parameter, m, v)

        next_m = self.beta_1 * m + ((1.0 - self.beta_1) * gradient_scale) * gradient
        next_v = self.beta_2 * v + ((1.0 - self.beta_2) * gradient_scale**2) * tf.square(gradient)
        step = self._direction(next_m, next_v)
        if self._do_use_weight_decay(name):
            step += self.weight_decay_rate * parameter
        rate = self.learning_rate * self._trust_ratio(name, parameter, step)
        if name in self._rate_scales:
            rate *= self._rate_scales[name]
        next_values = ((parameter, parameter - rate * step), (m, next_m), (v, next_v))
        if usable is not None:
            next_values = ((of, tf.where(usable, value, of)) for of, value in next_values)
        return tf.group(*(of.assign(value) for of, value in next_values))

    def _fused_update(self, name, gradient, parameter, m, v):
        """The same by TensorFlow's own kernel, which passes over the memory of a large variable once."""
        rate = self.learning_rate * self._rate_scales.get(name, 1.0)
        before = [gradient]  # for which the weights have been read
        if self._do_use_weight_decay(name):
            with tf.control_dependencies(before):
                before = [parameter.assign(parameter * (1.0 - rate * self.weight_decay_rate))]
        with tf.control_dependencies(before):
            # Powers of beta are for the correction of the bias, which 0 leaves out.
            return tf.raw_ops.ResourceApplyAdam(
                var=parameter.handle,
                m=m.handle,
                v=v.handle,
                beta1_power=0.0,
                beta2_power=0.0,
                lr=rate,
                beta1=self.beta_1,
                beta2=self.beta_2,
                epsilon=self.epsilon,
                grad=gradient,
            )

    def _direction(self, m, v):
        """The step before weight decay, of the moments after this step's gradient."""
        return m / (tf.sqrt(v) + self.epsilon)

    def _trust_ratio(self, name, parameter, step):
        """What the learning rate of a variable is multiplied by."""
        del name, parameter, step
        return 1.0

    def _slot(self, name, variable):
        return tf.get_variable(
            name,
            variable.shape.as_list(),
            tf.float32,
            initializer=tf.zeros_initializer(),
            trainable=False,
            use_resource=True,
        )

    def _do_use_weight_decay(self, name):
        return bool(self.weight_decay_rate) and not self._is_excluded(name)

    def _is_excluded(self, name):
        return any(re.search(pattern, name) for pattern in self.exclude_from_weight_decay or [])


class LambOptimizer(AdamWeightDecayOptimizer):
    """LAMB (https://arxiv.org/abs/1904.00962, algorithm 2): Adam's step, scaled to the norm of the variable it moves.

        w <- w - learning_rate (|w| / |step|) step,    step = m' / (sqrt(v') + epsilon) + weight_decay_rate w

    The paper divides the moments by 1 - beta^t for m' and v', and so do NVIDIA's and MLPerf's code; ALBERT's does not.
    As in all three, biases and LayerNorm, which do not decay, are not scaled either. The slots are Adam's.
    """

    _is_plain = False

    def __init__(self, *args, bias_correction=True, **kwargs):
        """Makes an optimizer; arguments as of `AdamWeightDecayOptimizer`.

        Args:
          *args, **kwargs: those arguments.
          bias_correction: whether m and v are corrected for having begun at 0.
        """
        super().__init__(*args, **kwargs)
        self._bias_correction = bias_correction

    def _direction(self, m, v):
        if not self._bias_correction:
            return super()._direction(m, v)
        t = tf.cast(tf.convert_to_tensor(tf.train.get_or_create_global_step()), tf.float32) + 1.0
        # 1 - beta^t by expm1, which keeps its digits while beta^t is near 1.
        corrected_m, corrected_v = (
            moment / -tf.math.expm1(t * math.log(beta)) for moment, beta in ((m, self.beta_1), (v, self.beta_2))
        )
        return super()._direction(corrected_m, corrected_v)

    def _trust_ratio(self, name, parameter, step):
        if self._is_excluded(name):
            return 1.0
        norm, step_norm = tf.norm(parameter), tf.norm(step)
        usable = (norm > 0) & (step_norm > 0)
        return tf.where(usable, norm / tf.where(usable, step_norm, tf.ones_like(step_norm)), tf.ones_like(norm))


_OPTIMIZERS = {
    ADAMW: (AdamWeightDecayOptimizer, {}),
    "lamb": (LambOptimizer, {}),
    "lamb_without_bias_correction": (LambOptimizer, {"bias_correction": False}),
}
OPTIMIZERS = tuple(_OPTIMIZERS)
