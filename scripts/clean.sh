#!/usr/bin/env bash
# Removes what set-up and the tools made. Runs are never touched.
source "$(dirname "$0")/lib.sh"
run rm -rf .venv .venv-preflight .pytest_cache .ruff_cache .hypothesis
run find bert scripts tests benchmarks -name __pycache__ -prune -exec rm -rf {} +
