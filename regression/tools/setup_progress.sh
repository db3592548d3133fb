#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# setup_progress.sh SETUP - tools/setup.sh shows that a long command is still running, shows its
# last output, and returns its status.
set -euo pipefail
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
# only the functions
sed -n '/^say() /p; /^show_progress() /,/^}/p; /^watched() /,/^}/p' "$1" > "$folder/functions.sh"
cat > "$folder/job.sh" << 'JOB'
printf 'compiling one.c\r\n' # as dpkg ends its lines
until grep -q "a job: 0:0" "$1/said"; do sleep 0.2; done # until the progress was told
exit 7
JOB
cat > "$folder/main.sh" << 'MAIN'
set -euo pipefail
. "$1/functions.sh"
code=0
watched "a job" "$1/log" sh "$1/job.sh" "$1" || code=$?
echo "ended with $code"
MAIN
: > "$folder/said"
TRSHARD_SETUP_EVERY=0 bash "$folder/main.sh" "$folder" >> "$folder/said" 2>&1
cat "$folder/said"
grep -q '^\[setup\] a job: 0:0[0-9]  compiling one.c$' "$folder/said"
grep -q '^ended with 7$' "$folder/said"
grep -q '^compiling one.c.$' "$folder/log"
