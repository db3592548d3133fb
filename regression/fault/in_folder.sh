#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# in_folder.sh PARENT COMMAND...: run the command with a new folder as its last argument, then
# remove the folder.
set -eu
folder=$(mktemp -d "$1/trs_fault_XXXXXX")
trap 'rm -rf "$folder"' EXIT
shift
"$@" "$folder"
