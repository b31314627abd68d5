#!/usr/bin/env bash
# Writes a page about a run.
source "$(dirname "$0")/lib.sh"
run "$python" -m bert.report --output_dir="${OUT:-out/$RUN}"
