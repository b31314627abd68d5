"""What is refused before anything is trained."""

import json

import pytest

from bert.errors import InputError
from bert.modeling import BertConfig
from bert.training import preflight


def test_a_folder_of_another_model_is_refused(tiny_model, tmp_path):
    vocab_file = str(tiny_model / "vocab.txt")
    content = json.loads((tiny_model / "bert_config.json").read_text())
    preflight.claim_output_dir(str(tmp_path), BertConfig.from_dict(content), vocab_file)
    preflight.check_output_dir(str(tmp_path), BertConfig.from_dict(content), vocab_file)
    with pytest.raises(InputError, match=r"was trained with hidden_size=32 \(.*but this model has hidden_size=64\. "):
        preflight.check_output_dir(str(tmp_path), BertConfig.from_dict({**content, "hidden_size": 64}), vocab_file)
    (tmp_path / "other.txt").write_text((tiny_model / "vocab.txt").read_text().replace("the", "thy"))
    with pytest.raises(InputError, match=r"another vocabulary .*or --vocab_file="):
        preflight.check_output_dir(str(tmp_path), BertConfig.from_dict(content), str(tmp_path / "other.txt"))
