#!/usr/bin/env bash
# Makes .venv from requirements.txt; with "dev", from requirements-dev.txt. Does nothing when it is up to date.
# VENV=folder makes it there, as on the machines of the cloud. With an NVIDIA GPU, or with GPU=1, it gets what
# requirements-gpu.txt has too; GPU=0 leaves that out.
source "$(dirname "$0")/lib.sh"

requirements="requirements${1:+-$1}.txt"
files=("$requirements")
if [[ ${GPU:-} == 1 ]] || { [[ -z ${GPU:-} && ! -e /dev/accel0 ]] && nvidia-smi -L >/dev/null 2>&1; }; then
  files+=(requirements-gpu.txt)
fi
venv=${VENV:-.venv}
place=$(cd "$(dirname "$venv")" && pwd)
stamp=$venv/.installed-$requirements
state=$(cat requirements.txt "${files[@]}")

# The virtual environment is of use only where it was made: a copied or moved one is stale.
if [[ -f $stamp && $(<"$stamp") == "$state" ]] && "$venv/bin/python" -c '' 2>/dev/null &&
  [[ $(<"$venv/.place") == "$place" ]]; then
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
[[ -e /dev/accel0 || -n ${VENV:-} ]] && options+=(--system-site-packages)
version='from importlib.metadata import version; raise SystemExit(not version("tensorflow").startswith("2.15."))'
if [[ -e /dev/accel0 ]] && ! "$found" -c "$version" 2>/dev/null; then
  die "$found has no TensorFlow 2.15, and one from the package index could not use the TPU. The images named
tpu-vm-tf-2.15.1-se have it: make the TPU VM with one of these."
fi
printf 'Setting up %s with %s from %s; this takes a few minutes.\n' "$venv" "$("$found" --version)" "${files[*]}"
if [[ ! -d $venv ]] || ! "$venv/bin/python" -c '' 2>/dev/null ||
  [[ ! -f $venv/.place || $(<"$venv/.place") != "$place" ]]; then
  run "$found" -m venv --clear ${options[@]+"${options[@]}"} "$venv"
fi
run "$venv/bin/python" -m pip install --quiet --disable-pip-version-check "${files[@]/#/--requirement=}"
if [[ -z ${DRY_RUN:-} ]]; then
  printf '%s' "$place" >"$venv/.place"
  printf '%s\n' "$state" >"$stamp"
fi
