"""One arm of training_step.py: google-research/bert, with nothing of this project in its process.

python training_step_original.py FOLDER ORIGINAL
"""

import os
import pathlib
import sys
import types

import tensorflow.compat.v1 as tf
import timed_steps
import training_step_arm


def main(folder, original):
    """Serves steps of the original's model_fn."""
    tf.disable_eager_execution()
    tf.set_random_seed(1)
    tf.train.create_global_step()

    def layer_norm(inputs, begin_norm_axis, begin_params_axis, scope):
        del begin_norm_axis, begin_params_axis  # the last one, both
        with tf.variable_scope(scope, default_name="LayerNorm"):
            width = inputs.shape[-1]
            beta = tf.get_variable("beta", [width], initializer=tf.zeros_initializer())
            gamma = tf.get_variable("gamma", [width], initializer=tf.ones_initializer())
            mean, variance = tf.nn.moments(inputs, [-1], keepdims=True)
            return tf.nn.batch_normalization(inputs, mean, variance, beta, gamma, 1e-12)

    tf.contrib = types.SimpleNamespace(
        layers=types.SimpleNamespace(layer_norm=layer_norm),
        tpu=types.SimpleNamespace(TPUEstimatorSpec=tf.estimator.tpu.TPUEstimatorSpec),
    )
    # The folder is gone when the benchmark ends, and with it this copy.
    for name in ("modeling", "optimization", "run_pretraining"):
        text = (pathlib.Path(original) / f"{name}.py").read_text(encoding="utf-8")
        text = text.replace("import tensorflow as tf", "import tensorflow.compat.v1 as tf")
        (pathlib.Path(folder) / f"{name}.py").write_text(text, encoding="utf-8")
    sys.path.insert(0, folder)
    import modeling
    import run_pretraining

    model_fn = run_pretraining.model_fn_builder(
        modeling.BertConfig.from_json_file(os.path.join(folder, "config.json")),
        init_checkpoint=None,
        learning_rate=1e-4,
        num_train_steps=10**6,
        num_warmup_steps=100,
        use_tpu=False,
        use_one_hot_embeddings=False,
    )
    features = timed_steps.features(training_step_arm.dataset())
    made = model_fn(features, None, tf.estimator.ModeKeys.TRAIN, {})
    training_step_arm.serve(timed_steps.of_graph(made.loss, made.train_op))


if __name__ == "__main__":
    main(*sys.argv[1:])
