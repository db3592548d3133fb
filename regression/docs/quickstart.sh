#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# quickstart.sh: in a copy of the tree, jobs/quickstart.sh succeeds, prints the output in README.md,
# and leaves the files that it names.
set -euo pipefail
top=$(realpath "$(dirname "$0")/../..")
copy=$(mktemp -d /tmp/trs_quickstart_XXXXXX)
trap 'rm -rf "$copy"' EXIT
git -C "$top" ls-files -z | tar -C "$top" --null --files-from=- -c | tar -C "$copy" -x
cd "$copy"
jobs/quickstart.sh 2>&1 | tee quickstart.log
# otherwise PyPI is not reachable, and the data are generated
if grep -q '^== done: MovieLens' quickstart.log; then
  /usr/bin/python3 regression/docs/docs.py --log quickstart.log --block jobs/quickstart.sh README.md
  build/trshard -options_file input/movielens_two_tower.opts -batch_size 512 -epochs 4 | tee recall.log
  grep -E '^recall .*@100 0\.[3-9]' recall.log || { echo "the towers find no more than the order of popularity, 0.26" && exit 1; }
fi
for name in train.h5 eval.h5 model.h5 plan.json loss.png plan.png; do
  [ -s "results/quickstart/$name" ] || { echo "results/quickstart/$name is missing" && exit 1; }
done
