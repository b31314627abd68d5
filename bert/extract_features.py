"""Vectors of text from a trained encoder, of each token or of each line.

    python -m bert.extract_features --input_file=input.txt --output_file=output.jsonl --layers=-1,-2,-3,-4 \
        --bert_config_file=bert_config.json --vocab_file=vocab.txt --init_checkpoint=bert_model.ckpt
    python -m bert.extract_features --input_file=- --output_file=vectors.npy --init_checkpoint=folder --layers=-1 \
        --pooling=mean < input.txt

A line of the input is a text, or two with " ||| " between them. The output has an entry for each line, in order.
`bert.text_encoder.TextEncoder` does the same in Python.
"""

import pathlib
import sys

if not __package__:  # run as a file
    sys.path[0] = str(pathlib.Path(__file__).resolve().parents[1])

import json
import re

import numpy as np
from absl import flags, logging

from bert import configs, files, program, text_encoder, training_flags
from bert.errors import InputError

FLAGS = flags.FLAGS

flags.DEFINE_string("input_file", None, "Comma-separated globs of UTF-8 text files, or - for standard input.")
flags.DEFINE_string(
    "output_file",
    None,
    "File to write, or - for standard output: JSON lines; or arrays, if its name ends in .npy or .npz.",
)
flags.DEFINE_list("layers", ["-1", "-2", "-3", "-4"], "Layers, from 0 for the first or from -1 for the last.")
flags.DEFINE_string("bert_config_file", None, "Model shape. Default: that of the checkpoint.")
flags.DEFINE_string("init_checkpoint", None, "The model, in any form that docs/formats.md names.")
flags.DEFINE_string("vocab_file", None, "Vocabulary. Default: that of the checkpoint.")
flags.DEFINE_bool("do_lower_case", True, "Whether text is lower-cased. Unless given, as the vocabulary is.")
flags.DEFINE_integer("max_seq_length", 128, "Tokens of a line; what is longer is cut.", lower_bound=3)
flags.DEFINE_integer("batch_size", 32, "Lines computed at a time, over all cores.", lower_bound=1)
flags.DEFINE_enum(
    "pooling",
    "none",
    text_encoder.POOLINGS,
    "How the vectors of a line's tokens become one: that of [CLS], the mean, the maximum; or not at all.",
)
flags.DEFINE_bool("use_one_hot_embeddings", False, "Whether words are looked up by a matrix product.")
training_flags.define_device()


def main():
    """Reads, computes and writes, a block of lines at a time."""
    pooled = FLAGS.pooling != "none"
    if FLAGS.output_file.endswith(".npy") and not pooled:
        raise InputError("--output_file: a .npy file has a row for each line: give --pooling too, or name a .npz file.")
    device = training_flags.choose_device(FLAGS, ())
    lines = _read_lines(FLAGS.input_file)  # raises now if there is no such file
    encoder = text_encoder.TextEncoder(
        FLAGS.init_checkpoint,
        config=configs.load_model_config(FLAGS.bert_config_file) if FLAGS.bert_config_file else None,
        vocab_file=FLAGS.vocab_file,
        do_lower_case=FLAGS.do_lower_case if FLAGS["do_lower_case"].present else None,
        layers=_layers(),
        pooling=FLAGS.pooling,
        max_seq_length=FLAGS.max_seq_length,
        batch_size=FLAGS.batch_size,
        device=device,
        num_tpu_cores=FLAGS.num_tpu_cores,
        use_one_hot_embeddings=FLAGS.use_one_hot_embeddings,
    )
    # Whoever types lines wants to see what becomes of them.
    read_ahead = {"read_ahead": 1} if FLAGS.input_file == "-" else {}
    encoded = encoder.iterate(map(_split_pair, lines), **read_ahead)
    if FLAGS.output_file == "-":
        count = _write_json(sys.stdout, encoder, encoded)
    else:
        write = {"npy": _write_npy, "npz": _write_npz}.get(FLAGS.output_file.rpartition(".")[2])
        with files.writing(FLAGS.output_file), files.atomic_write(FLAGS.output_file, "wb" if write else "w") as f:
            count = (write or _write_json)(f, encoder, encoded)
    logging.info("%s: %d lines", FLAGS.output_file, count)


def _layers():
    try:
        return [int(layer) for layer in FLAGS.layers]
    except ValueError:
        raise InputError(f"--layers={','.join(FLAGS.layers)}: whole numbers are wanted, such as -1,-2.") from None


def _read_lines(patterns):
    """Iterator over the lines of the input; raises InputError if there is no such file."""
    if patterns == "-":
        return _decode_lines([("standard input", sys.stdin.buffer)])
    paths = files.expand_globs(patterns, "input_file")
    return _decode_lines((path, files.open_file(path)) for path in paths)


def _decode_lines(opened):
    for path, f in opened:
        with f:
            for number, line in enumerate(f, 1):
                try:
                    text = line.decode("utf-8")
                except UnicodeDecodeError as e:
                    raise InputError(f"{path}, line {number}: not UTF-8 ({e.reason}).") from e
                yield text.removeprefix("\ufeff") if number == 1 else text


def _split_pair(line):
    """A line as a text, or as a pair if it has " ||| " in it: the last one counts, as in the original."""
    pair = re.fullmatch(r"(.*) \|\|\| (.*)", line.strip())
    return pair.groups() if pair else line


def _write_json(f, encoder, encoded):
    """Writes an object for each line, in the original's form: six decimals. Returns the number of lines."""
    count = 0
    for count, line in enumerate(encoded, 1):
        content = {"linex_index": count - 1}
        if encoder.pooling == "none":
            content["features"] = [
                {"token": token, "layers": _describe(encoder, vectors)}
                for token, vectors in zip(line.tokens, line.vectors)
            ]
        else:
            content["layers"] = _describe(encoder, line.vectors)
        f.write(json.dumps(content) + "\n")
        f.flush()
    return count


def _describe(encoder, vectors):
    """The vectors [layers, hidden] of a token or a line, for JSON."""
    return [
        {"index": layer, "values": [round(value, 6) for value in values]}
        for layer, values in zip(encoder.layers, vectors.tolist())
    ]


def _write_npy(f, encoder, encoded):
    """Writes an array [lines, hidden], or [lines, layers, hidden] for several layers, without keeping it in memory."""
    header_size = 128
    f.write(bytes(header_size))
    count = 0
    for line in encoded:
        count += 1
        f.write(line.vectors.astype("<f4").tobytes())
    shape = (count, *(len(encoder.layers),) * (len(encoder.layers) > 1), encoder.config.hidden_size)
    header = repr({"descr": "<f4", "fortran_order": False, "shape": shape})
    f.seek(0)
    f.write(b"\x93NUMPY\x01\x00" + (header_size - 10).to_bytes(2, "little") + header.encode().ljust(header_size - 11))
    f.write(b"\n")
    return count


def _write_npz(f, encoder, encoded):
    """Writes "vectors"; without pooling those of all tokens, with "tokens" and "ends", where each line has ended."""
    found = list(encoded)
    if encoder.pooling != "none":
        np.savez(f, vectors=np.stack([line.vectors for line in found]))
        return len(found)
    np.savez(
        f,
        vectors=np.concatenate([line.vectors for line in found]),  # [tokens, layers, hidden]
        tokens=np.array([token for line in found for token in line.tokens]),
        ends=np.cumsum([len(line.tokens) for line in found]),
    )
    return len(found)


if __name__ == "__main__":
    program.run(main, required=["input_file", "output_file", "init_checkpoint"])
