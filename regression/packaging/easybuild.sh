#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# easybuild.sh SOURCE SCRATCH PYTHON - EasyBuild's own checks of the recipe: its style, and that its robot finds an easyconfig for
# each dependency. pip installs EasyBuild into SCRATCH. Exit 77: skipped.
set -euo pipefail
source=$1 scratch=$2 python=$3
mkdir -p "$scratch"
cd "$scratch"
lmod=$(find /usr/share/lmod -path '*/libexec/lmod' 2> /dev/null | head -n 1)
[ -n "$lmod" ] || { echo "skipped: no Lmod here (Debian: lmod)"; exit 77; }
if [ ! -e venv/done ]; then
  rm -rf venv
  { "$python" -m venv venv && venv/bin/pip install -q easybuild==5.4.1 pycodestyle; } > venv.log 2>&1 || { tail -n 3 venv.log; echo "skipped: pip cannot install EasyBuild"; exit 77; }
  touch venv/done
fi
export PATH=$scratch/venv/bin:$PATH:${lmod%/*} LMOD_CMD=$lmod EASYBUILD_PREFIX=$scratch/easybuild EASYBUILD_ALLOW_USE_AS_ROOT_AND_ACCEPT_CONSEQUENCES=1
recipe=$(echo "$source"/tools/packaging/*.eb)
eb --check-style "$recipe" > style.log 2>&1 || { cat style.log; exit 1; }
eb --dry-run --robot "$recipe" > robot.log 2>&1 || { cat robot.log; exit 1; }
for name in PETSc HDF5 hwloc Jansson xxHash h5py "$(basename "$recipe" .eb)"; do
  grep -q " \[ \] .*/${name}[^/]*\.eb " robot.log || { cat robot.log; echo "easybuild.sh: the robot's plan has no $name"; exit 1; }
done
echo "$(grep -c '^ \* \[' robot.log) easyconfigs, with $(eb --version 2> /dev/null | grep -o 'EasyBuild [0-9.]*')"
