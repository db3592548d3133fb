#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# install.sh BUILD SOURCE SCRATCH - the steps of a packager: install below DESTDIR, move the tree,
# use it from there, and configure with libraries that have their upstream names.
set -euo pipefail
build=$1 source=$2 scratch=$3
prefix=$scratch/moved
rm -rf "$scratch"
mkdir -p "$scratch"
fail() {
  echo "install.sh: $*" >&2
  exit 1
}

# DESTDIR, then another place.
(umask 022; DESTDIR=$scratch/destdir cmake --install "$build" --prefix /opt/trshard > "$scratch/install.log")
mv "$scratch/destdir/opt/trshard" "$prefix"
for file in bin/trshard share/trshard/tools/inspect_file.py share/trshard/input/movielens.opts share/trshard/input/FORMAT.md \
  share/trshard/jobs/train.sbatch share/trshard/jobs/quickstart.sh bin/trshard-quickstart share/doc/trshard/LICENSE share/trshard/README.md share/man/man1/trshard.1 share/man/man3/TrshardForward.3 \
  share/bash-completion/completions/trshard share/zsh/site-functions/_trshard share/pkgconfig/trshard.pc \
  include/trshard.h lib/libtrshard.so.1 share/cmake/trshard/trshardConfig.cmake share/trshard/tools/examples/train.c \
  share/trshard/tools/python/trshard/__init__.py; do
  [ -s "$prefix/$file" ] || fail "$file is not installed"
done
! grep -rl "$source" "$prefix/share" || fail "the files above name the source folder"
# The installed program looks for libraries in the same folders as the build's program, except the
# build folder.
runpath() { readelf -d "$1" | sed -n 's/.*R[UN]*PATH.*\[\(.*\)\]/\1/p' | tr ':' '\n' | grep -vE "^($build|$source)?(/|$)" || true; }
for file in bin/trshard lib/libtrshard.so; do
  [ "$(runpath "$build/${file#*/}")" = "$(runpath "$prefix/$file")" ] || fail "$file looks for libraries in other folders than the build's: $(runpath "$prefix/$file")"
  ! readelf -d "$prefix/$file" | grep PATH | grep -E "$source|$build" || fail "$file looks for libraries in the source or build folder"
done

# Installed files can be read and called by everyone, regardless of the clone's umask.
[ -z "$(find "$prefix" ! -type l ! -perm -a=r -o -type d ! -perm -a=x | tee "$scratch/unreadable")" ] || { cat "$scratch/unreadable"; fail "others cannot read the files above"; }
for script in "$prefix"/share/trshard/tools/*.py; do
  [ "$(head -c 2 "$script")" != "#!" ] || [ -x "$script" ] || fail "$script is not executable"
done
! grep -q USE_SOURCE_PERMISSIONS "$build/cmake_install.cmake" || fail "permissions of installed files are those of the clone"

# Links between the installed pages.
PYTHONPATH=$source/tools "${TRSHARD_PYTHON:-python3}" -B - "$prefix" << 'END' || fail "links of installed pages lead nowhere"
import pathlib, sys
import check_documents
root, problems = pathlib.Path(sys.argv[1]).resolve(), []
pages = list(root.rglob("*.md"))
for page in pages:
    check_documents.check_links(root, page, problems)
print("\n".join(problems))
sys.exit(1 if problems or not pages else 0)
END

# The program, a tool and the study of the moved tree, from an empty folder.
mkdir "$scratch/work"
cd "$scratch/work"
export PATH=$prefix/bin:$PATH
version=$(trshard -version | cut -d' ' -f2)
python3 "$prefix/share/trshard/tools/generate_data.py" --output d.h5 --num-samples 512 --features 2 --num-embeddings 100 > tool.log 2>&1
python3 "$prefix/share/trshard/tools/inspect_file.py" --check d.h5 > tool.log
printf 'y,a\n1,7\n0,8\n' > t.csv
trshard-convert --output t.h5 --labels y --sparse a:10 t.csv > tool.log
mkdir -p elsewhere
ln -sf "$prefix"/bin/trshard-* elsewhere/
for tool in elsewhere/trshard-*; do
  "$tool" --help > tool.log || fail "$tool does not begin"
done
elsewhere/trshard-inspect --check t.h5 > tool.log
printf -- '-data_train %s/work/d.h5\n-tables_embedding_dim 4\n-dense_arch 4\n-over_arch 4,1\n' "$scratch" > run.opts
SLURM_JOB_ID="" SLURM_SUBMIT_DIR="" RANKS=1 GLOBAL_BATCH=64 BATCH=64 STEPS=2 OPTIONS=run.opts bash "$prefix/share/trshard/jobs/scaling.sbatch" > study.log 2>&1 ||
  { cat study.log; fail "the installed scaling study"; }
[ "$(wc -l < results/scaling/scaling.csv)" = 3 ] || fail "the study has not two rows"

# pkg-config, the module file and the completion.
export PKG_CONFIG_PATH=$prefix/share/pkgconfig
[ "$(pkg-config --modversion trshard)" = "$version" ] || fail "pkg-config says another version than the program"
[ -x "$(pkg-config --variable=bindir trshard)/trshard" ] || fail "pkg-config's bindir has no trshard"
module=$prefix/share/modulefiles/trshard/$version
[ -s "$module" ] || fail "no module file"
# the module file's settings, at its place and through a site's link to it
if command -v tclsh > /dev/null; then
  mkdir -p site
  ln -s "$module" site/link
  printf '%s\n' "PATH $prefix/bin" "MANPATH $prefix/share/man" "append MANPATH" "LD_LIBRARY_PATH $prefix/lib" \
    "PYTHONPATH $prefix/share/trshard/tools/python" "PKG_CONFIG_PATH $prefix/share/pkgconfig" "CMAKE_PREFIX_PATH $prefix" "TRSHARD_ROOT $prefix" > module.expected
  for file in "$module" "$PWD/site/link"; do
    tclsh > module.sets << END
proc module-whatis args {}
proc conflict args {}
proc prepend-path {name value} { puts "\$name \$value" }
proc append-path {name value} { puts [string trim "append \$name \$value"] }
proc setenv {name value} { puts "\$name \$value" }
set ModulesCurrentModulefile {$file}
source {$file}
END
    diff module.expected module.sets || fail "the module file sets the values of the right side"
  done
fi

# The library from the moved tree: the example with mpicc and with CMake, and the Python package.
flags=$(pkg-config --cflags --libs trshard)
# shellcheck disable=SC2086 # flags are words
mpicc -Wall -Wextra -Werror "$prefix/share/trshard/tools/examples/train.c" $flags -lm -o train || fail "the example does not build"
export LD_LIBRARY_PATH=$prefix/lib
for n in 1 2; do
  mpirun --allow-run-as-root --oversubscribe --bind-to none -n "$n" ./train > "train$n.log" || { cat "train$n.log"; fail "the example on $n ranks"; }
  grep -q '^step 400 loss 0.00' "train$n.log" || { cat "train$n.log"; fail "the example did not learn on $n ranks"; }
done
# shellcheck disable=SC2086 # flags are words
mpicc -Wall -Wextra -Werror "$prefix/share/trshard/tools/examples/predict.c" $flags -lpthread -o predict || fail "the example of predictions does not build"
./predict absent.h5 2> predict.log && fail "the example predicts without a checkpoint"
grep -q 'absent.h5' predict.log || { cat predict.log; fail "the example does not name the checkpoint that is missing"; }
cmp train1.log train2.log || fail "the example's losses differ between one and two ranks"
mkdir -p own
printf 'cmake_minimum_required(VERSION 3.22)\nproject(own C)\nfind_package(trshard 1 REQUIRED)\nadd_executable(own %s)\ntarget_link_libraries(own trshard::trshard m)\n' \
  "$prefix/share/trshard/tools/examples/train.c" > own/CMakeLists.txt
{ cmake -S own -B own/build "-DCMAKE_PREFIX_PATH=$prefix"; cmake --build own/build; } > own.log 2>&1 || true
[ -x own/build/own ] || { cat own.log; fail "find_package(trshard)"; }
# The library in C++, where Open MPI and MPICH add bindings: with CMake, with and without C, and
# with a C++ compiler and mpicc's flags.
mkdir -p cxx
printf '#include <trshard.h>\nint main(int argc, char **argv) {\n  TrshardPredictor p;\n  return TrshardPredictorOpen(argv[argc - 1], nullptr, &p) == TRSHARD_ERROR_NO_INPUT ? 0 : 1;\n}\n' > own.cpp
for languages in CXX "C CXX"; do
  printf 'cmake_minimum_required(VERSION 3.5)\nproject(own %s)\nfind_package(trshard 1 REQUIRED)\nadd_executable(own ../own.cpp)\ntarget_link_libraries(own trshard::trshard)\n' \
    "$languages" > cxx/CMakeLists.txt
  rm -rf cxx/build
  { cmake -S cxx -B cxx/build "-DCMAKE_PREFIX_PATH=$prefix"; cmake --build cxx/build; } > cxx.log 2>&1 || true
  [ -x cxx/build/own ] || { cat cxx.log; fail "find_package(trshard) in a project of $languages"; }
  cxx/build/own absent.h5 || fail "the program of a project of $languages"
done
# shellcheck disable=SC2086 # flags are words
OMPI_CC=c++ MPICH_CC=c++ mpicc own.cpp $flags -o by_hand || fail "a C++ program does not build with pkg-config's flags"
./by_hand absent.h5 || fail "the C++ program that pkg-config's flags build"
PYTHONPATH=$(pkg-config --variable=pythondir trshard) "${TRSHARD_PYTHON:-python3}" -c 'import trshard; print(trshard.version())' > version.log
[ "$(cat version.log)" = "$version" ] || fail "the Python package says version $(cat version.log)"
unset LD_LIBRARY_PATH

completions=$(bash -c "source '$prefix/share/bash-completion/completions/trshard'; COMP_WORDS=(trshard -task e) COMP_CWORD=2; _trshard; echo \"\${COMPREPLY[*]}\"")
[ "$completions" = eval ] || fail "completing '-task e' gives '$completions'"
completions=$(bash -c "source '$prefix/share/bash-completion/completions/trshard'; COMP_WORDS=(trshard -batch) COMP_CWORD=1; _trshard; echo \"\${COMPREPLY[*]}\"")
[ "$completions" = -batch_size ] || fail "completing '-batch' gives '$completions'"
! grep -r _KEY "$prefix/share/bash-completion" "$prefix/share/zsh" || fail "the completions have options that stand for others"

# The version contains each build's commit.
mkdir -p tree/inside
commit_of() { # FOLDER
  cmake "-DSOURCE=$PWD/$1" "-DHEADER=$PWD/commit.h" -P "$source/tools/cmake/commit.cmake"
  sed -n 's/#define TRS_COMMIT "\(.*\)"/\1/p' commit.h
}
git_tree() { git -C tree -c user.name=a -c user.email=a@b "$@"; }
git_tree init -q
for message in one two; do
  echo "$message" > tree/file
  git_tree add file
  git_tree commit -q -m "$message"
  [ "$(commit_of tree)" = "$(git_tree rev-parse --short=10 HEAD)" ] || fail "the version has not the commit $message"
done
echo three > tree/file
[ "$(commit_of tree)" = "$(git_tree rev-parse --short=10 HEAD)-dirty" ] || fail "the version does not show a changed tree"
[ "$(commit_of tree/inside)" = unknown ] || fail "an unpacked archive has the commit of the repository around it"

# Upstream's names, without Python: hdf5, openblas, petsc and xxhash without Debian's folders and
# suffixes.
names=$scratch/names/lib/pkgconfig
mkdir -p "$names"
cp_as() { # NAME-HERE UPSTREAM-NAME
  cp "$(pkg-config --variable=pcfiledir "$1")/$1.pc" "$names/$2.pc"
}
cp_as hdf5-openmpi hdf5
cp_as petsc petsc
cp_as openblas openblas
cp_as libxxhash libxxhash
for name in jansson yaml-0.1 hwloc cmocka ompi mpi-c ompi-c orte; do
  if pkg-config --exists "$name"; then cp_as "$name" "$name"; fi
done
PKG_CONFIG_LIBDIR=$names PKG_CONFIG_PATH="" cmake -G "Unix Makefiles" -S "$source" -B "$scratch/upstream" -DTRSHARD_CUDA=OFF -DBUILD_TESTING=OFF -DTRSHARD_PYTHON=/absent/python3 > upstream.log 2>&1 ||
  { cat upstream.log; fail "upstream's names are not found"; }
grep -q 'HDF5: hdf5 ' upstream.log || fail "HDF5 was not found by upstream's name"
grep -q 'TRSHARD_PYTHON=/absent/python3' upstream.log || fail "nothing says that there is no manual page without Python"
rules=$scratch/upstream/CMakeFiles/Makefile2
! grep -q 'documents.dir' "$rules" || fail "the build calls a Python that is not there"
grep -q '^CMakeFiles/trs_installed.dir/all: CMakeFiles/libtrshard.dir/all' "$rules" || fail "tools/setup.sh does not build the library"

# Without pkg-config files: headers and libraries of a prefix that the user gives.
includes=$(pkg-config --variable=includedir petsc) libraries=$(pkg-config --variable=libdir petsc)
hdf5_includes=$(pkg-config --cflags-only-I hdf5-openmpi | sed 's/-I\([^ ]*\).*/\1/') hdf5_libraries=$(pkg-config --libs-only-L hdf5-openmpi | sed 's/-L\([^ ]*\).*/\1/')
mkdir -p empty
PKG_CONFIG_LIBDIR=$PWD/empty PKG_CONFIG_PATH="" cmake -S "$source" -B "$scratch/without" -DTRSHARD_CUDA=OFF -DBUILD_TESTING=OFF \
  "-DCMAKE_INCLUDE_PATH=$includes;$hdf5_includes" "-DCMAKE_LIBRARY_PATH=$libraries;$hdf5_libraries" > without.log 2>&1 ||
  { cat without.log; fail "nothing is found without pkg-config files"; }

# One message names everything that is missing.
if PKG_CONFIG_LIBDIR=$PWD/empty PKG_CONFIG_PATH="" cmake -S "$source" -B "$scratch/missing" -DTRSHARD_CUDA=OFF -DBUILD_TESTING=OFF \
  "-DCMAKE_FIND_ROOT_PATH=$PWD/empty" -DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY -DCMAKE_FIND_ROOT_PATH_MODE_INCLUDE=ONLY > missing.log 2>&1; then
  fail "configured where libraries are missing"
fi
for package in libhdf5-openmpi-dev hdf5-openmpi-devel petsc-dev libjansson-dev xxhash-devel; do
  grep -q "$package" missing.log || { cat missing.log; fail "the message does not name $package"; }
done
[ "$(grep -c 'CMake Error' missing.log)" = 1 ] || { cat missing.log; fail "not one message"; }

# A bundle of a build without tests. Open MPI 5 has no orted.
if command -v ompi_info > /dev/null && command -v orted > /dev/null; then
  mkdir bare
  cp "$build/trshard" bare/
  TRSHARD_BUNDLE_LEVEL=0 "$source/tools/bundle.sh" bare bundle.tar.xz > bundle.log 2>&1 || { cat bundle.log; fail "no bundle without tests"; }
  grep -q 'has no tests' bundle.log || fail "bundle.sh does not say that the bundle has no tests"
fi
echo "install.sh: all of it"
