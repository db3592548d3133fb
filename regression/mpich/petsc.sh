#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# petsc.sh PREFIX - the part of PETSc that trshard uses (libpetscsys), built with MPICH into PREFIX.
#
# Debian's PETSc is built with Open MPI. The sources come from PyPI. The rest of PETSc, which takes
# a quarter of an hour, is not built. If PREFIX already has the library, the script does nothing.
set -euo pipefail
prefix=$1
python=${TRSHARD_PYTHON:-/usr/bin/python3}
version=3.18.5
[ ! -s "$prefix/lib/pkgconfig/PETSc.pc" ] || exit 0
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
"$python" -m pip download --quiet --no-deps --no-build-isolation --no-binary :all: "petsc==$version" -d "$work" > "$work/pip.log" 2>&1 ||
  { tail -n 3 "$work/pip.log" >&2; exit 77; }
tar xzf "$work/petsc-$version.tar.gz" -C "$work"
cd "$work/petsc-$version"
"$python" ./configure PETSC_ARCH=mpich --prefix="$prefix" --with-cc=mpicc.mpich --with-cxx=0 --with-fc=0 \
  --with-mpiexec=mpiexec.mpich --with-blaslapack-lib=-lopenblas --with-debugging=0 --with-x=0 --with-ssl=0 \
  --with-hwloc=0 --with-single-library=0 COPTFLAGS=-O1 > "$work/configure.log" 2>&1 || { tail -n 30 "$work/configure.log" >&2; exit 1; }
make -f gmakefile PETSC_DIR="$PWD" PETSC_ARCH=mpich pkgs=sys libs -j "$(nproc)" > "$work/make.log" 2>&1 ||
  { tail -n 30 "$work/make.log" >&2; exit 1; }
mkdir -p "$prefix/lib/pkgconfig"
cp -r include mpich/include "$prefix/"
cp -a mpich/lib/libpetscsys.so* "$prefix/lib/"
sed 's/-lpetscts.*-lpetscsys/-lpetscsys/' mpich/lib/pkgconfig/PETSc.pc > "$prefix/lib/pkgconfig/PETSc.pc"
