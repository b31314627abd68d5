#!/usr/bin/env bash
# Pretrains and evaluates, or with "eval" only evaluates.
source "$(dirname "$0")/lib.sh"
if is_remote; then exec_cloud "${1/train/pretrain}"; fi

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
flag vocab_size "${VOCAB_SIZE:-}"
training_flags
extra_flags
run_last "$python" -m bert.run_pretraining "${flags[@]}"
