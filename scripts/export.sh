#!/usr/bin/env bash
# Writes a trained model in the forms in which others take it.
source "$(dirname "$0")/lib.sh"
# A run is called after its task, as in finetune.sh.
[[ -z ${TASK:-} || (-n ${RUN:-} && $RUN != pretrain) ]] || RUN=${TASK,,}
model=${INIT:-out/$RUN}
flag model_dir "$model"
flag model_export_path "${OUT:-$model/export}"
flag bert_config_file "${CONFIG:-}"
flag vocab_file "${VOCAB:-}"
flag max_seq_length "${SEQ:-}"
extra_flags
run_last "$python" -m bert.export_model "${flags[@]}"
