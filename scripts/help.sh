#!/usr/bin/env bash
# Prints the verbs of a Makefile by the `##` after each, grouped by the `##@` headers.
set -euo pipefail
awk 'BEGIN { FS = ":.*## " }
  /^##@/ { printf "\n%s\n", substr($0, 5) }
  /^[a-z-]+:.*## / { printf "  make %-13s %s\n", $1, $2 }' "$1"
cat <<'EOF'

Variables (on the command line, in the environment, or in config.mk)
  RECIPE       a name in bert/configs/recipes, or a file            (sample)
  CORPUS       text files: a sentence a line, a blank line between documents  (data/kjv)
  EVAL_CORPUS  text files to evaluate on                            (documents held out of CORPUS)
  VOCAB        vocab.txt                                            (trained from CORPUS)
  CONFIG       model shape: a name such as bert-mini, or a bert_config.json   (the recipe's)
  INIT         checkpoint to start from: TensorFlow 1 or 2, a SavedModel, or a Hugging Face folder
  TASK DATA_DIR             fine-tuning task (cola sst-2 mrpc sts-b qqp mnli qnli rte wnli ax xnli tsv squad
                            tagging), and the folder with its files
  STEPS EPOCHS BATCH SEQ LR SEED   override the recipe or the usual
  SEEDS        fine-tune so many times with other seeds, and keep the best
  RUN OUT      name of the run, and its folder                      (pretrain or TASK, out/RUN)
  TPU_NAME     Cloud TPU to train on; `local` on a TPU VM           (this machine)
  CONTROL_VM   the machine that runs the program                    (worker 0 of TPU_NAME)
  ZONE PROJECT BUCKET TPU_TYPE     where, gs://name, and what       (gcloud's settings, none, v3-8)
  ARGS         further flags of the program, as they are
  DRY_RUN=1    print the commands, run none
  YES=1        answer yes before anything is spent or deleted
Those that only the verbs of the cloud have are in docs/cloud.md.
EOF
