#!/usr/bin/env bash
# Pretrains and evaluates, or with "eval" only evaluates.
source "$(dirname "$0")/lib.sh"

if [[ -n ${CORPUS:-} ]]; then
  flag input_file "$CORPUS"
  flag eval_file "${EVAL_CORPUS:-}"
else
  flag input_file data/kjv/train.txt
  flag eval_file "${EVAL_CORPUS:-data/kjv/held_out.txt}"
fi
[[ $1 == eval ]] || flags+=(--do_train)
flags+=(--do_eval)
flag recipe "${RECIPE:-}"
flag output_dir "${OUT:-out/$RUN}"
flag vocab_file "${VOCAB:-}"
flag vocab_size "${VOCAB_SIZE:-}"
flag bert_config_file "${CONFIG:-}"
flag init_checkpoint "${INIT:-}"
flag num_train_steps "${STEPS:-}"
flag train_batch_size "${BATCH:-}"
flag max_seq_length "${SEQ:-}"
flag learning_rate "${LR:-}"
flag seed "${SEED:-}"
flag tpu_name "${TPU_NAME:-}"
if [[ -n ${TPU_NAME:-} ]]; then
  flag tpu_zone "${ZONE:-}"
  flag gcp_project "${PROJECT:-}"
fi
extra_flags
run "$python" -m bert.run_pretraining "${flags[@]}"
