#!/usr/bin/env bash
# Rehearses the whole life of a run in the cloud on this machine, without an account.
# The machine of the rehearsal has no TPU. REHEARSAL_DEVICE=cpu in its environment, and nowhere else, makes lib.sh leave
# out --tpu_name, so that the program trains on the CPU there; all else is as it would be in the cloud.
source "$(dirname "$0")/lib.sh"
missing=
command -v gcloud >/dev/null || missing+="
gcloud: https://cloud.google.com/sdk/docs/install"
command -v ssh >/dev/null && PATH=$PATH:/usr/sbin:/usr/local/sbin command -v sshd >/dev/null || missing+="
ssh and sshd: sudo apt-get install openssh-client openssh-server   (it need not be enabled)"
[[ -d /proc/self ]] || missing+="
Linux: the machine of the rehearsal is a group of processes that are found through /proc"
[[ -z $missing ]] || die "The rehearsal needs the real programs that talk to the cloud. Missing:$missing"
scripts/setup.sh dev
exec "$python" -m scripts.cloud.rehearse
