#!/usr/bin/env bash
# Makes .venv from requirements.txt; with "dev", from requirements-dev.txt. Does nothing when it is up to date.
source "$(dirname "$0")/lib.sh"

requirements="requirements${1:+-$1}.txt"
stamp=.venv/.installed-$requirements
state=$(cat requirements.txt "$requirements")

# The virtual environment is of use only where it was made: a copied or moved one is stale.
if [[ -f $stamp && $(<"$stamp") == "$state" ]] && .venv/bin/python -c '' 2>/dev/null &&
  [[ $(<.venv/.place) == "$PWD" ]]; then
  exit 0
fi

usable() {
  "$1" -c 'import sys, venv, ensurepip; sys.exit(not (3, 9) <= sys.version_info[:2] <= (3, 11))' 2>/dev/null
}

found=
for candidate in ${PYTHON:-} python3.11 python3.10 python3.9 python3 python; do
  if usable "$candidate"; then
    found=$candidate
    break
  fi
done
if [[ -z $found ]]; then
  die "No usable Python: TensorFlow 2.15 needs Python 3.9, 3.10 or 3.11 with its venv module.
On Debian or Ubuntu: sudo apt-get install python3.11 python3.11-venv. Elsewhere: pyenv install 3.11.
Name one that is not on the PATH with PYTHON=/path/to/python3.11 make setup."
fi

options=()
# A TPU VM's own TensorFlow is the only one that can drive its TPU: it must be seen, never replaced.
[[ -e /dev/accel0 ]] && options+=(--system-site-packages)
printf 'Setting up .venv with %s from %s; this takes a few minutes.\n' "$("$found" --version)" "$requirements"
if [[ ! -d .venv ]] || ! .venv/bin/python -c '' 2>/dev/null || [[ ! -f .venv/.place || $(<.venv/.place) != "$PWD" ]]; then
  run "$found" -m venv --clear ${options[@]+"${options[@]}"} .venv
fi
run .venv/bin/python -m pip install --quiet --disable-pip-version-check --requirement "$requirements"
if [[ -z ${DRY_RUN:-} ]]; then
  printf '%s' "$PWD" >.venv/.place
  printf '%s\n' "$state" >"$stamp"
fi
