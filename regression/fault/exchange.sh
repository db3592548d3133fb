#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# exchange.sh EXCHANGE_FAULTS MPIRUN...: kill -9 of a rank during exchanges by shared memory. The
# job and every rank must end, with an error.
set -eu
program=$1
shift
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# shellcheck disable=SC2009 # pgrep cannot tell the arguments apart
left() { ps -ww -eo args | grep -F "$program $point $folder" | grep -v -F -e grep -e mpirun; }
for point in "before 1" "between 0" "between 2" "flight 1"; do
  rm -f "$folder/exchanged"
  # shellcheck disable=SC2086 # two words
  if timeout 120 "$@" -n 3 "$program" $point "$folder/exchanged" >"$folder/log" 2>&1; then
    echo "kill $point: the job ended well" && exit 1
  else
    status=$?
  fi
  [ "$status" != 124 ] || { echo "kill $point: the job hangs" && exit 1; }
  [ -f "$folder/exchanged" ] || { cat "$folder/log" && echo "kill $point: no exchange before" && exit 1; }
  for tenth in $(seq 600); do # a killed rank takes a moment to exit
    left >/dev/null || break
    [ "$tenth" != 600 ] || { left && echo "kill $point: a rank is left" && exit 1; }
    sleep 0.1
  done
done
echo "4 kills: all ranks ended"
