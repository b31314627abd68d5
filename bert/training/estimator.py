"""The TPUEstimator of a run: one place for its configuration on every device."""

import tensorflow.compat.v1 as tf


def make(
    model_fn,
    device,
    output_dir,
    seed,
    train_batch_size,
    eval_batch_size=None,
    predict_batch_size=None,
    save_checkpoints_steps=1000,
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
        master=device.master,
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
        train_batch_size=train_batch_size,
        eval_batch_size=eval_batch_size,
        predict_batch_size=predict_batch_size,
    )
