"""A model of given weights in a session, to compute with rather than to train."""

import tensorflow.compat.v1 as tf

from bert import modeling
from bert.errors import InputError


def build_model(config, input_ids, input_mask, segment_ids, use_one_hot_embeddings=False):
    """Builds the encoder on int32 Tensors [batch, seq] whose sizes need not be known; returns a `BertModel`."""
    return modeling.BertModel(
        config=config,
        is_training=False,
        input_ids=input_ids,
        input_mask=input_mask,
        token_type_ids=segment_ids,
        use_one_hot_embeddings=use_one_hot_embeddings,
        scope="bert",  # the same one if it is built again, on the same variables
    )


def load_variables(session, values, path):
    """Gives the graph's variables their values.

    Args:
      session: a session of the graph.
      values: dict from names to arrays.
      path: where they come from, for messages.

    Raises:
      InputError: a variable is not among them or has another shape. Those of the pooler may be missing, as in models
        that were trained without it; they stay without a value.
    """
    initializers = {}  # of each variable, to what it is fed with
    for variable in tf.global_variables():
        name = variable.op.name
        if name not in values and name.startswith("bert/pooler/"):
            continue
        if name not in values:
            raise InputError(f"{path}: there is no {name} in it, which the model needs.")
        if list(values[name].shape) != variable.shape.as_list():
            raise InputError(
                f"{path}: {name} has shape {list(values[name].shape)} there but {variable.shape.as_list()} in this "
                "model. Use the bert_config.json that belongs to it."
            )
        # The value that the initializer assigns is fed: a graph cannot hold more than 2 GB of constants.
        initializers[variable.initializer] = values[name]
    feed = {initializer.inputs[1]: value for initializer, value in initializers.items()}
    session.run(list(initializers), feed)
