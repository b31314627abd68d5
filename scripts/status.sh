#!/usr/bin/env bash
# Tells how far a run is.
source "$(dirname "$0")/lib.sh"
if is_remote; then exec_cloud status; fi
run "$python" -m bert.status --output_dir="${OUT:-out/$RUN}"
