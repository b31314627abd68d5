#!/usr/bin/env bash
# Makes pretraining records.
source "$(dirname "$0")/lib.sh"
[[ -n ${VOCAB:-} ]] || die "VOCAB=vocab.txt is needed; make vocab trains one."
flag input_file "${CORPUS:-data/kjv/train.txt}"
flag output_file "${OUT:-out/records}/pretraining.tfrecord"
flag vocab_file "$VOCAB"
flag max_seq_length "${SEQ:-}"
flag random_seed "${SEED:-}"
extra_flags
run "$python" -m bert.create_pretraining_data "${flags[@]}"
