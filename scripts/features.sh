#!/usr/bin/env bash
# Computes vectors of text.
source "$(dirname "$0")/lib.sh"
[[ -n ${INIT:-} && -n ${CORPUS:-} ]] || die "INIT=model and CORPUS=text.txt are needed (CORPUS=- reads standard input)."
if is_remote; then exec_cloud features; fi
flag input_file "$CORPUS"
flag output_file "${OUT:-out/features/features.jsonl}"
flag init_checkpoint "$INIT"
flag bert_config_file "${CONFIG:-}"
flag vocab_file "${VOCAB:-}"
flag max_seq_length "${SEQ:-}"
flag batch_size "${BATCH:-}"
device_flags
extra_flags
run_last "$python" -m bert.extract_features "${flags[@]}"
