#!/usr/bin/env bash
# Trains as a job of Vertex AI.
source "$(dirname "$0")/lib.sh"
# A file of somebody else's is read with PyYAML, which is in the virtual environment.
[[ -z ${JOB:-} ]] || exec "$python" -m scripts.cloud vertex
exec_cloud vertex
