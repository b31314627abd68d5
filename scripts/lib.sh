# shellcheck shell=bash
# What the scripts share. Settings arrive in the environment; an empty one counts as not given.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

die() {
  printf '%s\n' "$*" >&2
  exit 2
}

# Runs a command, or with DRY_RUN=1 prints it in a form that can be pasted.
run() {
  if [[ -n ${DRY_RUN:-} ]]; then
    printf '%q ' "$@"
    printf '\n'
  else
    "$@"
  fi
}

# Runs the last command of a script in place of the script, so that signals to the script are the command's.
run_last() {
  if [[ -n ${DRY_RUN:-} ]]; then run "$@"; else exec "$@"; fi
}

# Appends --name=value to `flags` when the value is not empty.
flags=()
flag() {
  if [[ -n ${2:-} ]]; then flags+=("--$1=$2"); fi
}

# Appends the words of ARGS to `flags`. Quotes group words; nothing in them is expanded.
extra_flags() {
  local word
  [[ ${ARGS:-} == *[![:space:]]* ]] || return 0
  printf '%s' "$ARGS" | xargs printf '%s' >/dev/null 2>&1 || die "ARGS=$ARGS: a quotation mark has no partner."
  while IFS= read -r -d '' word; do
    flags+=("$word")
  done < <(printf '%s' "$ARGS" | xargs printf '%s\0')
}

# Appends the flags that every training takes from the same variables.
training_flags() {
  flag vocab_file "${VOCAB:-}"
  flag bert_config_file "${CONFIG:-}"
  flag init_checkpoint "${INIT:-}"
  flag num_train_steps "${STEPS:-}"
  flag train_batch_size "${BATCH:-}"
  flag max_seq_length "${SEQ:-}"
  flag learning_rate "${LR:-}"
  flag seed "${SEED:-}"
  device_flags
}

# Appends the flags that say where to compute.
device_flags() {
  # The machines of a rehearsal say so, and have no TPU: see scripts/rehearse.sh.
  if [[ ${REHEARSAL_DEVICE:-} == cpu ]]; then
    flag use_tpu false
    return 0
  fi
  flag tpu_name "${TPU_NAME:-}"
  if [[ -n ${TPU_NAME:-} ]]; then
    flag tpu_zone "${ZONE:-}"
    flag gcp_project "${PROJECT:-}"
  fi
}

# Whether the program is to run on a machine elsewhere.
is_remote() {
  [[ -n ${CONTROL_VM:-} || (-n ${TPU_NAME:-} && $TPU_NAME != local && $TPU_NAME != *://*) ]]
}

# Hands over to the verb of the same name for machines elsewhere, which needs no .venv.
exec_cloud() {
  command -v python3 >/dev/null || die "python3, of version 3.9 or later, is needed to work with machines elsewhere."
  exec python3 -m scripts.cloud "$@"
}

# shellcheck disable=SC2034  # the scripts use it
python=${VENV:-.venv}/bin/python
