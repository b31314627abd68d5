# shellcheck shell=bash
# Runs on the machine of the program: bash -c "$(<receive.sh)" receive RUN HASH URL
# Fetches the code of a run, unless it is there, and sets up ~/bert-venv for it. Can be repeated.
set -euo pipefail
run=$1 hash=$2 url=$3
folder=~/bert-runs/$run
code=$folder/code-$hash
mkdir -p "$folder"
if [[ ! -e $code ]]; then
  # A folder of a name of its own first, so that what was cut off is never taken for the whole.
  partial=$(mktemp -d "$folder/partial-XXXXXX")
  trap 'rm -rf "$partial"' EXIT
  if command -v gcloud >/dev/null; then
    gcloud storage cat "$url"
  else
    gsutil cat "$url"
  fi | tar --extract --gzip --directory "$partial"
  mv -T "$partial" "$code" 2>/dev/null || [[ -e $code ]]
fi
# A job that is running keeps the folder it was started in.
ln -sfn "code-$hash" "$folder/code.new"
mv -T "$folder/code.new" "$folder/code"
cd "$code"
# One at a time: the environment is that of all runs.
exec 9>~/bert-venv.lock
flock 9
# The Python of the image, which has the TensorFlow for its device.
PYTHON=python3 VENV=~/bert-venv scripts/setup.sh </dev/null >&2
