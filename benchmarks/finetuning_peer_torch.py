"""The peer of benchmarks/finetuning_peer.py: Hugging Face transformers on PyTorch fine-tunes on a GLUE task.

    python benchmarks/finetuning_peer_torch.py --model=folder --task=mrpc --data_dir=glue/MRPC --seed=1

Runs in an environment of its own, with torch, transformers, scikit-learn and SciPy, and imports nothing of this
project: it reads the files, tokenizes, trains and scores by others' code. The optimizer alone is written here, since
PyTorch's AdamW corrects the moments for having begun at 0, which BERT's does not. Prints the metrics as a line of JSON.
"""

import argparse
import csv
import json
import math
import pathlib

import torch
import transformers
from scipy import stats
from sklearn import metrics

# Columns of the sentences and of the label, whether the first line is a header, and the labels.
TASKS = {
    "cola": ((3, None, 1), False, ["0", "1"]),
    "sst-2": ((0, None, 1), True, ["0", "1"]),
    "mrpc": ((3, 4, 0), True, ["0", "1"]),
    "rte": ((1, 2, 3), True, ["entailment", "not_entailment"]),
    "sts-b": ((7, 8, 9), True, None),
}


def main():
    """Trains and prints the metrics."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", required=True, help="Hugging Face folder of an encoder.")
    parser.add_argument("--task", required=True, choices=TASKS)
    parser.add_argument("--data_dir", required=True, type=pathlib.Path, help="Folder of train.tsv and dev.tsv.")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--epochs", type=float, default=3.0)
    parser.add_argument("--max_seq_length", type=int, default=128)
    options = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.set_seed(options.seed)
    labels = TASKS[options.task][2]
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    model = transformers.AutoModelForSequenceClassification.from_pretrained(
        options.model, num_labels=len(labels) if labels else 1, classifier_dropout=0.1
    )

    def encode(name):
        texts, pairs, values = read(options.data_dir / name, options.task)
        kind = torch.long if labels else torch.float
        found = tokenizer(texts, pairs, truncation="longest_first", max_length=options.max_seq_length)
        return [
            {**{key: found[key][i] for key in found}, "labels": torch.tensor(value, dtype=kind)}
            for i, value in enumerate(values)
        ]

    collate = transformers.DataCollatorWithPadding(tokenizer)
    train(model, encode("train.tsv"), collate, options)
    print(json.dumps(evaluate(model, encode("dev.tsv"), collate, options.task)))


def read(path, task):
    """Returns the first sentences, the second ones or None, and the labels of a file of GLUE."""
    (first, second, label), has_header, labels = TASKS[task]
    with open(path, encoding="utf-8-sig", newline="") as f:
        rows = list(csv.reader(f, delimiter="\t", quoting=csv.QUOTE_NONE))[has_header:]
    values = [labels.index(row[label]) if labels else float(row[label]) for row in rows]
    return [row[first] for row in rows], [row[second] for row in rows] if second else None, values


def train(model, examples, collate, options):
    """Trains on whole batches in a new order each epoch, as this project does."""
    decayed, others = [], []
    for name, parameter in model.named_parameters():
        (others if "LayerNorm" in name or "bias" in name else decayed).append(parameter)
    steps = int(len(examples) * options.epochs / options.batch_size)
    warmup = int(0.1 * steps)
    optimizer = BertAdam([{"params": decayed, "weight_decay": 0.01}, {"params": others, "weight_decay": 0.0}])
    loader = torch.utils.data.DataLoader(examples, options.batch_size, shuffle=True, collate_fn=collate, drop_last=True)
    model.train()
    step = 0
    while step < steps:
        for batch in loader:
            model(**batch).loss.backward()
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            rate = options.learning_rate * (step / warmup if step < warmup else 1 - step / steps)
            optimizer.step(rate)
            optimizer.zero_grad()
            step += 1
            if step == steps:
                break


class BertAdam(torch.optim.Optimizer):
    """Adam with decoupled weight decay and without bias correction, as the original BERT was trained."""

    def __init__(self, groups):
        """Makes an optimizer of parameter groups that have `weight_decay`."""
        super().__init__(groups, {})

    @torch.no_grad()
    def step(self, rate):
        """Moves the parameters at a learning rate."""
        for group in self.param_groups:
            for parameter in group["params"]:
                state, gradient = self.state[parameter], parameter.grad
                if gradient is None:
                    continue
                if not state:
                    state["m"], state["v"] = torch.zeros_like(parameter), torch.zeros_like(parameter)
                state["m"].mul_(0.9).add_(gradient, alpha=0.1)
                state["v"].mul_(0.999).addcmul_(gradient, gradient, value=0.001)
                update = state["m"] / (state["v"].sqrt() + 1e-6)
                parameter.sub_(rate * (update + group["weight_decay"] * parameter))


@torch.no_grad()
def evaluate(model, examples, collate, task):
    """The official metrics of the task."""
    model.eval()
    outputs = [model(**batch).logits for batch in torch.utils.data.DataLoader(examples, 32, collate_fn=collate)]
    outputs, labels = torch.cat(outputs), torch.stack([example["labels"] for example in examples]).numpy()
    if task == "sts-b":
        scores = outputs[:, 0].numpy()
        return {"pearson": stats.pearsonr(scores, labels)[0], "spearman": stats.spearmanr(scores, labels)[0]}
    choices = outputs.argmax(1).numpy()
    found = {"accuracy": metrics.accuracy_score(labels, choices)}
    if task == "cola":
        found["matthews"] = metrics.matthews_corrcoef(labels, choices)
    if task == "mrpc":
        found["f1"] = metrics.f1_score(labels, choices)
    return {name: value for name, value in found.items() if math.isfinite(value)}


if __name__ == "__main__":
    main()
