#!/usr/bin/env bash
# Checks style without changing anything.
source "$(dirname "$0")/lib.sh"
scripts/setup.sh dev
run .venv/bin/ruff check .
run .venv/bin/ruff format --check .
run .venv/bin/shellcheck scripts/*.sh scripts/vm/*.sh .ci/run
