#!/usr/bin/env bash
# Serves the curves of a run.
source "$(dirname "$0")/lib.sh"
if is_remote; then exec_cloud tensorboard; fi
run "$python" -m tensorboard.main --logdir "${OUT:-out/$RUN}"
