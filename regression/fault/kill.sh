#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# kill.sh CHECKPOINT_FAULTS MPIRUN...: kill -9 of a rank at many points of writing step 2. Step 1 stays byte for byte, the newest good file is
# found, and the next write removes what the killed one left.
set -eu
program=$1
shift
folder=$(mktemp -d /tmp/trs_kill_XXXXXX)
trap 'rm -rf "$folder"' EXIT
"$@" -n 2 "$program" write "$folder" 1
cp "$folder/step-000000001.h5" "$folder/before"
n=0
for point in "open 1 0" "open 2 0" "pwrite 1 0" "pwrite -3 0" "ftruncate 1 0" "fallocate 1 0" "open 1 1" "pwrite 1 1" "pwrite -2 1" "pwrite 3 1" \
  "fsync 1 1" "fsync 1 0" "pwrite -12 0" "fsync 3 0" "rename 1 0" "fsync 4 0"; do
  # shellcheck disable=SC2086 # three words
  if "$@" -n 2 "$program" kill "$folder" 2 $point >"$folder/log" 2>&1; then
    echo "kill at $point: the program ended well" && exit 1
  fi
  cmp "$folder/before" "$folder/step-000000001.h5"
  newest=$("$@" -n 1 "$program" newest "$folder")
  case $newest in
  "newest 1") ;;
  "newest 2") [ "$point" = "fsync 4 0" ] || { echo "kill at $point: $newest" && exit 1; } ;;
  *) echo "kill at $point: $newest" && exit 1 ;;
  esac
  n=$((n + 1))
done
"$@" -n 2 "$program" write "$folder" 3
left=$(find "$folder" -name '.step-*.tmp' | wc -l)
[ "$left" = 0 ] || { echo "$left temporary files are left" && exit 1; }
[ "$("$@" -n 3 "$program" newest "$folder")" = "newest 3" ]
echo "$n kills: the previous checkpoint stayed"
