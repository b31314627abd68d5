"""The TPUEstimator of a run: one place for its configuration on every device, and for how it trains."""

import tensorflow.compat.v1 as tf

from bert import stopping
from bert.errors import TrainingError
from bert.training import checkpoints, guards

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
    """
    session_config = tf.ConfigProto(allow_soft_placement=True)
    session_config.gpu_options.allow_growth = True
    config = tf.estimator.tpu.RunConfig(
        cluster=device.resolver,
        model_dir=output_dir,
        tf_random_seed=seed,
        save_checkpoints_steps=save_checkpoints_steps,
        keep_checkpoint_max=keep_checkpoint_max,
        # `ProgressHook` writes the event files and the log.
        save_summary_steps=None,
        log_step_count_steps=None,
        session_config=session_config,
        tpu_config=tf.estimator.tpu.TPUConfig(
            # A loop must not run past a checkpoint that is due.
            iterations_per_loop=min(iterations_per_loop, save_checkpoints_steps),
            num_shards=num_tpu_cores,
            per_host_input_for_training=tf.estimator.tpu.InputPipelineConfig.PER_HOST_V2,
        ),
    )
    return tf.estimator.tpu.TPUEstimator(
        model_fn=model_fn,
        use_tpu=device.use_tpu,
        config=config,
        # Wanted always, though only a training looks at it.
        train_batch_size=train_batch_size or eval_batch_size or predict_batch_size,
        eval_batch_size=eval_batch_size,
        predict_batch_size=predict_batch_size,
    )


def train(estimator, input_fn, last_step, learning_rate, check=None):
    """Trains to a global step, or ends with an error that tells why not.

    Args:
      estimator: as `make` returns it, with a `guards.SaverHook` among the hooks of its model function.
      input_fn: its input function.
      last_step: global step at which to return.
      learning_rate: function from the global step to the learning rate used in that step.
      check: function called after every step, before anything of the step is saved; it may raise.

    Raises:
      TrainingError: the loss is not a number, or the training ended early for another reason.
      stopping.Stopped: a signal came; a checkpoint has been saved.
    """
    # Before Estimator's own check of the loss, which comes before the hooks of the model function.
    hooks = [guards.FiniteLossHook(learning_rate), guards.StopHook()]
    if check:
        hooks.insert(0, guards.CallHook(check))
    with stopping.after_step():
        estimator.train(input_fn, hooks=hooks, max_steps=last_step)
    step = checkpoints.latest(estimator.model_dir)[1]
    if step < last_step:
        raise TrainingError(
            f"The training returned without an error at step {step}, before step {last_step}. Run again to go on."
        )
