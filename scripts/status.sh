#!/usr/bin/env bash
# Tells how far a run is.
source "$(dirname "$0")/lib.sh"
run "$python" -m bert.status --output_dir="${OUT:-out/$RUN}"
