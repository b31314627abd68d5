"""Meta data that our and others' programs write."""

import json

import pytest
import tensorflow as tf

from bert.errors import InputError
from bert.tasks import glue, prepared


def write(path, content):
    path.write_text(json.dumps(content))
    return str(path)


def test_meta_data_is_read_back(tmp_path):
    content = prepared.meta_data(glue.Mrpc(), 128, {"train_data_size": 3668})
    meta = prepared.read_meta_data(write(tmp_path / "meta", content))
    assert meta == prepared.MetaData("MRPC", "single", ("0", "1"), 128, 3668)
    assert prepared.Prepared(meta).metric_names == ("f1",)


def test_meta_data_of_others(tmp_path):
    content = {"task_type": "bert_classification", "processor_type": "CB", "num_labels": 3, "max_seq_length": 64}
    meta = prepared.read_meta_data(write(tmp_path / "meta", content))
    assert (meta.labels, meta.label_kind) == (("0", "1", "2"), "single")
    assert prepared.read_meta_data(write(tmp_path / "x", {**content, "label_type": "float"})).label_kind == "regression"
    with pytest.raises(InputError, match=r"task_type is 'bert_squad'.* for run_squad"):
        prepared.read_meta_data(write(tmp_path / "x", {**content, "task_type": "bert_squad"}))
    with pytest.raises(InputError, match="no max_seq_length and no num_labels"):
        prepared.read_meta_data(write(tmp_path / "x", {}))


def test_records_that_do_not_fit_their_meta_data_are_refused(tmp_path):
    def record(length, label, **more):
        integers = {
            name: tf.train.Feature(int64_list=tf.train.Int64List(value=[1] * length))
            for name in ("input_ids", "input_mask", "segment_ids")
        }
        return tf.train.Example(features=tf.train.Features(feature={**integers, "label_ids": label, **more}))

    def check(example, vocab_size=2, **changes):
        path = str(tmp_path / "x.tf_record")
        with tf.io.TFRecordWriter(path) as writer:
            writer.write(example.SerializeToString())
        meta = prepared.MetaData("CB", "single", ("0", "1"), 8)
        return prepared.check_records(path, "eval_data_path", prepared.dataclasses.replace(meta, **changes), vocab_size)

    number = tf.train.Feature(float_list=tf.train.FloatList(value=[1.0]))
    integer = tf.train.Feature(int64_list=tf.train.Int64List(value=[1]))
    assert check(record(8, integer, weight=number), has_sample_weights=True)[-1] == "weight"
    assert check(record(8, number), label_kind="regression")[-1] == "label_ids"
    with pytest.raises(InputError, match=r"have 9 tokens, but the meta data says 8"):
        check(record(9, integer))
    with pytest.raises(InputError, match=r"token id 1, but the model's vocab_size is 1"):
        check(record(8, integer), vocab_size=1)
    with pytest.raises(InputError, match=r"label_ids are float32"):
        check(record(8, number))
    with pytest.raises(InputError, match=r"have no weight. Features found: input_ids"):
        check(record(8, integer), has_sample_weights=True)
