#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# service.sh TRSHARD_SERVE PYTHON - systemd accepts the unit of trshard-serve, and the options in its comment are the server's. The
# exit codes after which systemd does not start it again are those of wrong options and damaged files. Exit 77: skipped.
set -euo pipefail
server=$(realpath "$1")
unit=$(realpath "$(dirname "$0")/../../tools/packaging/trshard-serve.service")
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
fail() {
  echo "service.sh: $*" >&2
  exit 1
}

cd "$scratch"
options=$(sed -n 's/^#   \(-.*\)/\1/p' "$unit" | sed 's|/srv/clicks/||')
mkdir checkpoints
printf '%s\n-serve_port 0\n' "$options" > serve.opts
status() {
  local code=0
  timeout 20 "$server" -options_file serve.opts "$@" > log 2>&1 || code=$?
  echo "$code"
}
[ "$(status)" = 66 ] || fail "no checkpoint yet: $(cat log)"
prevent=" $(sed -n 's/^RestartPreventExitStatus=//p' "$unit") "
[ "$(status -serve_threads none)" = 64 ] || fail "a wrong option: $(cat log)"
[[ $prevent == *" 64 "* ]] || fail "systemd starts again after 64"
echo damaged > checkpoints/step-000000001.h5
code=$(status)
[[ $prevent == *" $code "* && $prevent != *" 66 "* ]] || fail "a damaged file ends with $code: $(cat log)"

command -v systemd-analyze > /dev/null || { echo "skipped: no systemd-analyze here"; exit 77; }
sed "s|^ExecStart=trshard-serve|ExecStart=$server|" "$unit" > trshard-serve.service
systemd-analyze verify --man=no ./trshard-serve.service > verify.log 2>&1 || fail "systemd-analyze: $(cat verify.log)"
! grep trshard-serve.service verify.log || fail "systemd-analyze has warnings"
echo "service.sh: $(wc -l < "$unit") lines are a unit"
