#!/usr/bin/env bash
# Converts a checkpoint to the form of the original project.
source "$(dirname "$0")/lib.sh"
[[ -n ${INIT:-} && -n ${OUT:-} ]] || die "INIT=checkpoint or folder, and OUT=folder, are needed."
flag input "$INIT"
flag output "$OUT"
extra_flags
run "$python" -m bert.convert_checkpoint "${flags[@]}"
