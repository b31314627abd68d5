"""The TPUEstimator of a run: one place for its configuration on every device, and for how it trains."""

import tensorflow.compat.v1 as tf

from bert import replicas, stopping
from bert.errors import InputError, TrainingError
from bert.training import checkpoints, devices, guards

SAVE_CHECKPOINTS_STEPS = 1000


def make(
    model_fn,
    device,
    output_dir,
    seed,
    train_batch_size=None,
    eval_batch_size=None,
    predict_batch_size=None,
    save_checkpoints_steps=SAVE_CHECKPOINTS_STEPS,
    keep_checkpoint_max=5,
    iterations_per_loop=1000,
    num_tpu_cores=None,
    patience=None,
):
    """Returns a TPUEstimator.

    Args:
      model_fn: model function that returns a TPUEstimatorSpec.
      device: a `bert.training.device.Device`.
      output_dir: folder of checkpoints and event files.
      seed: graph-level random seed.
      train_batch_size, eval_batch_size, predict_batch_size: examples per step over all replicas.
      save_checkpoints_steps: steps between two checkpoints.
      keep_checkpoint_max: how many of the newest checkpoints are kept.
      iterations_per_loop: steps that a TPU makes between two returns to the host.
      num_tpu_cores: number of replicas; None: as many as the TPU system has.
      patience: the `guards.Patience` with which a strategy's sessions are made.
    """
    training = train_batch_size is not None and device.strategy is not None
    config = tf.estimator.tpu.RunConfig(
        cluster=device.resolver,
        master=device.cluster.master if training and device.cluster else None,
        model_dir=output_dir,
        train_distribute=device.strategy if training else None,
        tf_random_seed=seed,
        save_checkpoints_steps=save_checkpoints_steps,
        keep_checkpoint_max=keep_checkpoint_max,
        # `ProgressHook` writes the event files and the log.
        save_summary_steps=None,
        log_step_count_steps=None,
        session_config=device.session_config() if train_batch_size else devices.session_config(),
        tpu_config=tf.estimator.tpu.TPUConfig(
            # A loop must not run past a checkpoint that is due.
            iterations_per_loop=min(iterations_per_loop, save_checkpoints_steps),
            num_shards=num_tpu_cores,
            per_host_input_for_training=tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    with tf.Graph().as_default():  # where a strategy can be copied, as the configuration is
        return _Estimator(
            patience,
            model_fn=model_fn,
            use_tpu=device.use_tpu,
            config=config,
            # Wanted always, though only a training looks at it.
            train_batch_size=train_batch_size or eval_batch_size or predict_batch_size,
            eval_batch_size=eval_batch_size,
            predict_batch_size=predict_batch_size,
        )


class _Estimator(tf.estimator.tpu.TPUEstimator):
    """A TPUEstimator under whose strategy every replica takes its rows of each global batch."""

    def __init__(self, patience, **options):
        super().__init__(**options)
        self._patience = patience

    def _get_iterator_from_input_fn(self, input_fn, mode, distribution=None):
        # Not the strategy's own iterator, each of whose devices takes whole batches: their order would be another one.
        iterator = tf.data.make_initializable_iterator(self._call_input_fn(input_fn, mode))
        # When the variables have their values, since the position follows from the global step.
        tf.add_to_collection(tf.GraphKeys.TABLE_INITIALIZERS, iterator.initializer)
        return iterator, []

    @tf.autograph.experimental.do_not_convert
    def _call_model_fn(self, features, labels, mode, config):
        if replicas.count() > 1:
            features = _own_rows(features)
        return super()._call_model_fn(features, labels, mode, config)

    def _create_global_step(self, graph):
        # Here the input function, which reads it, has been called before.
        return tf.train.get_global_step(graph) or super()._create_global_step(graph)

    def _train_with_estimator_spec(self, estimator_spec, *args):
        if self.config.train_distribute:
            # Of the replicas' scaffolds Estimator has made one of its own kind, which makes sessions without end.
            estimator_spec = estimator_spec._replace(scaffold=guards.Scaffold(self._patience))
        return super()._train_with_estimator_spec(estimator_spec, *args)

    def _assert_members_are_not_overridden(self):
        pass  # Estimator refuses subclasses like this one


def _own_rows(features):
    """This replica's rows of a global batch."""
    count, place = replicas.count(), tf.get_static_value(replicas.replica_id())
    sizes = {value.shape[0] for value in features.values()}
    if len(sizes) > 1 or max(sizes) % count:
        raise InputError(
            f"--pack_sequences: the rows of such batches cannot be shared by {count} devices. Leave it out, or give "
            "--distribution_strategy=one_device."
        )
    rows = max(sizes) // count
    with tf.device("/device:CPU:0"):  # where the batch is
        return {name: value[place * rows : (place + 1) * rows] for name, value in features.items()}


def train(estimator, input_fn, last_step, learning_rate, check=None, cluster=None):
    """Trains to a global step, or ends with an error that tells why not.

    Args:
      estimator: as `make` returns it, with a `guards.SaverHook` among the hooks of its model function.
      input_fn: its input function.
      last_step: global step at which to return.
      learning_rate: function from the global step to the learning rate used in that step.
      check: function called after every step, before anything of the step is saved; it may raise.
      cluster: the `cluster.Cluster` of several machines that train together.

    Raises:
      TrainingError: the loss is not a number, or the training ended early for another reason.
      stopping.Stopped: a signal came; a checkpoint has been saved.
    """
    # Before Estimator's own check of the loss, which comes before the hooks of the model function.
    hooks = [guards.FiniteLossHook(learning_rate), guards.SharedStopHook(cluster) if cluster else guards.StopHook()]
    if check:
        hooks.insert(0, guards.CallHook(check))
    with stopping.after_step(), tf.Graph().as_default():
        estimator.train(input_fn, hooks=hooks, max_steps=last_step)
    step = checkpoints.latest(estimator.model_dir)[1]
    if step < last_step:
        raise TrainingError(
            f"The training returned without an error at step {step}, before step {last_step}. Run again to go on."
        )
