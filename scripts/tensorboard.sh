#!/usr/bin/env bash
# Serves the curves of a run.
source "$(dirname "$0")/lib.sh"
run .venv/bin/tensorboard --logdir "${OUT:-out/$RUN}"
