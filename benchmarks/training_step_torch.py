"""One arm of training_step.py, in an environment that has PyTorch and transformers, and nothing of this project.

python training_step_torch.py FOLDER ARM
"""

import json
import os
import sys

import torch
import training_step_arm
import transformers


def main(folder, arm):
    """Serves steps of the model that the arm names."""
    options = arm.split(":")[1:]
    torch.set_num_threads(os.cpu_count())
    torch.manual_seed(1)
    with open(os.path.join(folder, "config.json"), encoding="utf-8") as f:
        config = transformers.BertConfig(**{**json.load(f), "hidden_act": "gelu_pytorch_tanh"})
    config._attn_implementation = "sdpa"
    model = transformers.BertForPreTraining(config).train()
    decayed = [p for name, p in model.named_parameters() if "bias" not in name and "LayerNorm" not in name]
    others = [p for name, p in model.named_parameters() if "bias" in name or "LayerNorm" in name]
    optimizer = torch.optim.AdamW(
        [{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}],
        lr=1e-4,
        eps=1e-6,
        fused=True,
    )
    x = {name: torch.from_numpy(values).long() for name, values in training_step_arm.inputs().items()}
    batch_size, seq_length = x["input_ids"].shape
    places = (x["masked_lm_positions"] + seq_length * torch.arange(batch_size)[:, None]).flatten()
    labels = torch.full((batch_size * seq_length,), -100).scatter(0, places, x["masked_lm_ids"].flatten())

    def loss_of(input_ids, input_mask, segment_ids):
        encoded = model.bert(input_ids=input_ids, attention_mask=input_mask, token_type_ids=segment_ids)
        vectors = encoded.last_hidden_state.flatten(0, 1)  # [batch * seq, hidden]
        wanted = labels
        if "gathered" in options:
            vectors, wanted = vectors[places], labels[places]
        words, following = model.cls(vectors, encoded.pooler_output)
        cross_entropy = torch.nn.functional.cross_entropy
        return cross_entropy(words.float(), wanted) + cross_entropy(
            following.float(), x["next_sentence_labels"].flatten()
        )

    if "compile" in options:
        loss_of = torch.compile(loss_of)

    def step():
        with torch.autocast("cpu", torch.bfloat16, enabled="bf16" in options):
            loss = loss_of(x["input_ids"], x["input_mask"], x["segment_ids"])
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    training_step_arm.serve(step)


if __name__ == "__main__":
    main(*sys.argv[1:])
