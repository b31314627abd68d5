#!/usr/bin/env bash
# Compiles a training for a TPU that is not there: whether it compiles, its memory, its time and its cost.
source "$(dirname "$0")/lib.sh"
venv=.venv-preflight
requirements="requirements-preflight.txt"

# Makes the compiler's environment, if it is missing, stale or moved.
set_up_compiler() {
  local stamp=$venv/.installed
  [[ -f $stamp && $(<"$stamp") == "$PWD $(<"$requirements")" ]] && return 0
  printf 'Setting up %s from %s; this takes a minute.\n' "$venv" "$requirements"
  run "$python" -m venv --clear "$venv" &&
    run "$venv/bin/python" -m pip install --quiet --disable-pip-version-check --requirement "$requirements" &&
    { [[ -n ${DRY_RUN:-} ]] || printf '%s' "$PWD $(<"$requirements")" >"$stamp"; }
}

if set_up_compiler; then
  flag compiler_python "$venv/bin/python"
else
  printf 'The compiler for TPUs cannot be installed here: it needs Linux on x86-64 and Python 3.10 or later.\n' >&2
fi
case ${TASK:-} in
  '') flag recipe "${RECIPE:-}" ;;
  squad) flag program squad ;;
  tagging)
    flag program tagging
    flag data_dir "${DATA_DIR:-}"
    ;;
  *)
    flag program finetune
    flag task_name "$TASK"
    flag data_dir "${DATA_DIR:-}"
    ;;
esac
flag tpu_type "${TPU_TYPE:-}"
flag price_per_hour "${PRICE_PER_HOUR:-}"
training_flags
extra_flags
run "$python" -m bert.preflight_tpu "${flags[@]}"
