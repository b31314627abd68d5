#!/usr/bin/env bash
# Runs the tests on the CPU; PYTEST_ARGS goes to pytest.
source "$(dirname "$0")/lib.sh"
scripts/setup.sh dev
export CUDA_VISIBLE_DEVICES=''
# shellcheck disable=SC2086
run "$python" -m pytest --numprocesses=2 --dist=worksteal --quiet ${PYTEST_ARGS:-}
