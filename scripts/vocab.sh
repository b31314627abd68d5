#!/usr/bin/env bash
# Trains a WordPiece vocabulary.
source "$(dirname "$0")/lib.sh"
flag input_file "${CORPUS:-data/kjv/train.txt}"
flag output_file "${OUT:-out/vocab.txt}"
flag vocab_size "${VOCAB_SIZE:-8000}"
extra_flags
run "$python" -m bert.train_vocab "${flags[@]}"
