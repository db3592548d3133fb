#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# exchange.sh EXCHANGE_FAULTS MPIRUN...: kill -9 of a rank in the middle of exchanges by shared memory. The job ends, with an error, and so does
# every rank; nothing stays in /dev/shm.
set -eu
program=$1
shift
log=$(mktemp)
trap 'rm -f "$log"' EXIT
before=$(find /dev/shm -name 'trshard*' | wc -l)
for point in "before 1" "between 0" "between 2" "flight 1"; do
  # shellcheck disable=SC2086 # two words
  if timeout 60 "$@" -n 3 "$program" $point >"$log" 2>&1; then
    echo "kill $point: the job ended well" && exit 1
  else
    status=$?
  fi
  grep -q '^exchanged$' "$log" || { cat "$log" && echo "kill $point: no exchange before" && exit 1; }
  [ "$status" != 124 ] || { echo "kill $point: the job hangs" && exit 1; }
  sleep 1
  # shellcheck disable=SC2009 # pgrep cannot tell the arguments apart
  if ps -eo args | grep -F "$program $point" | grep -v -F -e grep -e mpirun; then
    echo "kill $point: a rank is left" && exit 1
  fi
done
[ "$(find /dev/shm -name 'trshard*' | wc -l)" = "$before" ]
echo "4 kills: all ranks ended"
