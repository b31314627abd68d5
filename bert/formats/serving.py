"""SavedModels, and the graphs behind them: token ids or text in, probabilities out, no labels needed.

| kind | signature | inputs | outputs |
|---|---|---|---|
| classifier | serving_default | input_ids, input_mask, segment_ids | probabilities, logits |
| regression | serving_default | the same | predictions, logits |
| tagger | serving_default | the same | probabilities, logits [batch, seq, tags] |
| spans | serving_default | the same | start_logits, end_logits |
| encoder | serving_default | the same | pooled_output, sequence_output |
| pretraining | serving_default | the same | pooled_output, sequence_output, next_sentence_logits |
| | mlm | mlm_positions too | mlm_logits, and the former |
| all but taggers and spans | serving_text | text | those of serving_default |
| | serving_text_pairs | text_a, text_b | those of serving_default |

Ids, mask and segments are int32 [batch, seq], positions int32 [batch, predictions], texts string [batch], of any sizes.
"""

import os

import tensorflow.compat.v1 as tf

from bert import files, heads, inference, modeling, pretraining_heads, tokenization
from bert.formats import trained
from bert.formats.graph_tokenizer import GraphTokenizer
from bert.tasks import task as tasks
from bert.training import checkpoint_formats

_SPECIAL_TOKENS = ("[PAD]", "[CLS]", "[SEP]", "[UNK]")


def write(folder, model):
    """Writes a SavedModel.

    Args:
      folder: local or gs:// path that is not there yet.
      model: a `trained.TrainedModel`. Without a vocabulary it gets no signatures for text.

    Returns:
      Names of the signatures.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = token_inputs()
        signatures = {tf.saved_model.DEFAULT_SERVING_SIGNATURE_DEF_KEY: (inputs, outputs(model, **inputs))}
        if model.kind == trained.PRETRAINING:
            mlm_inputs = {**token_inputs(), "mlm_positions": tf.placeholder(tf.int32, [None, None], "mlm_positions")}
            signatures["mlm"] = mlm_inputs, outputs(model, **mlm_inputs)
        if model.vocab_file:
            if model.kind not in (trained.TAGGER, trained.SPANS):
                signatures.update(_text_signatures(model))
            # As in modules of TF hub: it is copied into the folder "assets".
            tf.add_to_collection(tf.GraphKeys.ASSET_FILEPATHS, tf.constant(model.vocab_file, name="vocab_file"))
        inference.load_variables(session, model.variables, model.path)
        builder = tf.saved_model.Builder(folder)
        builder.add_meta_graph_and_variables(
            session,
            [tf.saved_model.SERVING],
            {name: tf.saved_model.predict_signature_def(*of) for name, of in signatures.items()},
            assets_collection=tf.get_collection(tf.GraphKeys.ASSET_FILEPATHS),
            main_op=tf.tables_initializer(),
            strip_default_attrs=True,
        )
        # What the shapes of the variables do not tell, for whoever starts from this model.
        with files.atomic_write(os.path.join(folder, checkpoint_formats.CONFIG_FILE), "w") as f:
            f.write(model.config.to_json_string())
        builder.save()
    return list(signatures)


def frozen_graph(model):
    """The graph of serving_default with the weights in it.

    Args:
      model: a `trained.TrainedModel`.

    Returns:
      A GraphDef, and names of its inputs and of its outputs: dicts from those of the signature to those in the graph.
    """
    with tf.Graph().as_default(), tf.Session() as session:
        inputs = token_inputs()
        # Named by what they are.
        named = {name: tf.identity(tensor, f"output/{name}") for name, tensor in outputs(model, **inputs).items()}
        inference.load_variables(session, model.variables, model.path)
        graph = tf.graph_util.convert_variables_to_constants(
            session, tf.get_default_graph().as_graph_def(), [tensor.op.name for tensor in named.values()]
        )
        return (
            graph,
            {name: tensor.name for name, tensor in inputs.items()},
            {name: tensor.name for name, tensor in named.items()},
        )


def token_inputs():
    """Placeholders for tokens, a dict from their names, int32 [batch, seq] each."""
    return {name: tf.placeholder(tf.int32, [None, None], name) for name in ("input_ids", "input_mask", "segment_ids")}


def outputs(model, input_ids, input_mask, segment_ids, mlm_positions=None):
    """Builds a model's outputs, with the variables that are there already, if any.

    Args:
      model: a `trained.TrainedModel`.
      input_ids, input_mask, segment_ids: int32 Tensors [batch, seq].
      mlm_positions: int32 Tensor [batch, predictions], for the masked LM's scores.

    Returns:
      Dict from names to Tensors.
    """
    with tf.variable_scope(tf.get_variable_scope(), reuse=tf.AUTO_REUSE):
        encoder = inference.build_model(model.config, input_ids, input_mask, segment_ids)
        pooled, vectors = encoder.get_pooled_output(), encoder.get_sequence_output()
        if model.kind == trained.CLASSIFIER:
            logits = heads.class_logits(pooled, model.num_outputs)  # [batch, outputs]
            if model.label_kind == tasks.REGRESSION:
                return {"predictions": tf.squeeze(logits, axis=1), "logits": logits}
            return {"probabilities": heads.probabilities(logits, model.label_kind), "logits": logits}
        if model.kind == trained.TAGGER:
            logits = heads.token_logits(vectors, model.num_outputs)  # [batch, seq, tags]
            return {"probabilities": heads.probabilities(logits, model.label_kind), "logits": logits}
        if model.kind == trained.SPANS:
            start_logits, end_logits = heads.span_logits(vectors)  # [batch, seq] each
            return {"start_logits": start_logits, "end_logits": end_logits}
        found = {"pooled_output": pooled, "sequence_output": vectors}
        if "cls/seq_relationship/output_weights" in model.variables:
            found["next_sentence_logits"] = pretraining_heads.next_sentence_logits(model.config, pooled)
        if mlm_positions is not None:
            logits = pretraining_heads.masked_lm_logits(
                model.config, vectors, encoder.get_embedding_table(), mlm_positions
            )  # [batch * predictions, vocab]
            shape = [*modeling.get_shape_list(mlm_positions), model.config.vocab_size]
            found["mlm_logits"] = tf.reshape(logits, shape)
        return found


def _text_signatures(model):
    """Signatures that take text, a dict from their names to inputs and outputs."""
    vocab = tokenization.load_vocab(model.vocab_file, required=_SPECIAL_TOKENS)
    tokenizer = GraphTokenizer(vocab, model.do_lower_case)
    signatures = {}
    for name, texts in (("serving_text", ("text",)), ("serving_text_pairs", ("text_a", "text_b"))):
        inputs = {text: tf.placeholder(tf.string, [None], text) for text in texts}
        first, second = (*inputs.values(), None)[:2]
        tokens = tokenizer.features(first, second, model.max_seq_length)
        signatures[name] = inputs, outputs(model, *tokens)
    return signatures
