#!/usr/bin/env bash
# Runs the benchmarks that need nothing from elsewhere, and compares them with the committed table.
source "$(dirname "$0")/lib.sh"
flag output_dir "${OUT:-out/bench}"
extra_flags
run "$python" benchmarks/all.py "${flags[@]}"
