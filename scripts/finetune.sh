#!/usr/bin/env bash
# Fine-tunes on a task and evaluates; with "predict" predicts the test set.
source "$(dirname "$0")/lib.sh"
[[ -n ${TASK:-} ]] || die "TASK=name is needed: cola sst-2 mrpc sts-b qqp mnli qnli rte wnli ax xnli tsv squad tagging"
if is_remote; then exec_cloud "${1:-finetune}"; fi
name=${TASK,,}
# The Makefile calls a run "pretrain" unless it is told otherwise; here it is called after its task.
[[ -n ${RUN:-} && $RUN != pretrain ]] || RUN=$name
out=${OUT:-out/$RUN}

program=bert.run_classifier
case $name in
  squad) program=bert.run_squad ;;
  tagging) program=bert.run_tagging ;;
  *) flag task_name "$TASK" ;;
esac
if [[ ${1:-} == predict ]]; then
  flags+=(--do_predict)
elif [[ $name == squad ]]; then
  flags+=(--do_train --do_predict) # which scores the answers
else
  flags+=(--do_train --do_eval)
fi
[[ -n ${DATA_DIR:-} || ${ARGS:-} == *_file=* ]] || die "DATA_DIR=folder is needed: the files of task $TASK."
flag data_dir "${DATA_DIR:-}"
flag num_train_epochs "${EPOCHS:-}"
training_flags
extra_flags
if [[ -z ${SEEDS:-} || ${1:-} == predict ]]; then
  run_last "$python" -m "$program" "${flags[@]}" "--output_dir=$out"
  exit
fi
[[ $SEEDS =~ ^[1-9][0-9]*$ ]] || die "SEEDS=$SEEDS: a number of trainings is expected, such as SEEDS=5."
[[ -z ${SEED:-} ]] || die "SEED=$SEED and SEEDS=$SEEDS: give one of them."
for ((seed = 1; seed <= SEEDS; seed++)); do
  run "$python" -m "$program" "${flags[@]}" "--seed=$seed" "--output_dir=$out/seed-$seed"
done
run_last "$python" -m bert.compare_seeds "--output_dir=$out"
