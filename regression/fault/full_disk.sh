#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# full_disk.sh CHECKPOINT_FAULTS MPIRUN...: writing on a full disk ends with exit status 74 on all
# ranks, and existing files stay. The test needs the right to mount a small tmpfs, and is otherwise
# skipped (77).
set -eu
program=$1
shift
folder=$(mktemp -d /tmp/trs_full_XXXXXX)
log=$(mktemp /tmp/trs_full_XXXXXX)
trap 'umount --lazy "$folder" 2>/dev/null || true; rmdir "$folder" || true; rm -f "$log"' EXIT
if ! mount -t tmpfs -o size=256k tmpfs "$folder" 2>/dev/null; then
  echo "skipped: no right to mount a small tmpfs"
  exit 77
fi
used() { df --output=used -k "$folder" | tail -1; }
"$@" -n 2 "$program" write "$folder" 1
at_first=$(used)
for free in 0 4 8 16 24 32 48 64; do # KiB that are free
  rm -f "$folder/filler"
  # a process that mpirun killed may still be exiting, with its file open
  for tenth in $(seq 600); do
    [ "$(used)" != "$at_first" ] || break
    [ "$tenth" != 600 ] || { echo "$free KiB free: a killed process keeps its file open" && exit 1; }
    sleep 0.1
  done
  space=$(($(df --output=avail -k "$folder" | tail -1) - free))
  [ "$space" -lt 0 ] || head -c "${space}k" /dev/zero >"$folder/filler"
  status=0
  timeout 200 "$@" -n 2 "$program" write "$folder" 2 2>"$log" || status=$?
  [ "$status" = 74 ] || { echo "$free KiB free: status $status" && cat "$log" && exit 1; }
  grep -q "trshard: error: .*step-000000002.h5" "$log"
  [ -z "$(find "$folder" -name '*.tmp')" ] || { echo "$free KiB free: a temporary file is left" && exit 1; }
  [ "$("$@" -n 1 "$program" newest "$folder")" = "newest 1" ]
done
rm -f "$folder/filler"
"$@" -n 2 "$program" write "$folder" 2
[ "$("$@" -n 1 "$program" newest "$folder")" = "newest 2" ]
echo "8 full disks: reported, nothing lost"
