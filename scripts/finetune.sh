#!/usr/bin/env bash
# Fine-tunes on a task and evaluates; with "predict" predicts the test set.
source "$(dirname "$0")/lib.sh"
[[ -n ${TASK:-} ]] || die "TASK=name is needed: cola sst-2 mrpc sts-b qqp mnli qnli rte wnli ax xnli tsv"
if is_remote; then exec_cloud "${1:-finetune}"; fi
name=${TASK,,}
# The Makefile calls a run "pretrain" unless it is told otherwise; here it is called after its task.
[[ -n ${RUN:-} && $RUN != pretrain ]] || RUN=$name
out=${OUT:-out/$RUN}

if [[ ${1:-} == predict ]]; then
  flags+=(--do_predict)
else
  flags+=(--do_train --do_eval)
fi
[[ -n ${DATA_DIR:-} || ${ARGS:-} == *_file=* ]] || die "DATA_DIR=folder is needed: the files of task $TASK."
flag task_name "$TASK"
flag data_dir "${DATA_DIR:-}"
flag output_dir "$out"
flag num_train_epochs "${EPOCHS:-}"
training_flags
extra_flags
run_last "$python" -m bert.run_classifier "${flags[@]}"
