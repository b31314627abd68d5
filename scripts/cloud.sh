#!/usr/bin/env bash
# Runs a verb that is about machines elsewhere.
source "$(dirname "$0")/lib.sh"
exec_cloud "$@"
