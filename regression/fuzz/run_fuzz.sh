#!/bin/sh
# SPDX-License-Identifier: BSD-3-Clause
# run_fuzz.sh CLANG TARGET SOURCE BUILD PYTHON RUNS: build fuzz_TARGET.c with the parsers under
# clang's sanitizers, make its corpus, and try RUNS inputs (0: none). BUILD/fuzz_TARGET and
# BUILD/corpus_TARGET are kept. FUZZ_SEED selects another sequence of inputs.
set -eu
clang=$1 target=$2 source=$3 build=$4 python=$5 runs=$6
mkdir -p "$build/corpus_$target"
checks="-gline-tables-only -O1 -std=gnu11 -fno-sanitize-recover=undefined"
flags="$checks -fsanitize=fuzzer,address,undefined"
case $target in
yaml) program=options flags="$flags -DFUZZ_YAML" ;;
*) program=$target ;;
esac
case $target in
dataset | checkpoint | delta) library=hdf5-openmpi longest=16384 ;;
*) library=jansson longest=4096 ;;
esac
includes="-I$source/src -I$build/../../commit $(pkg-config --cflags PETSc hdf5-openmpi jansson libxxhash) $(mpicc --showme:compile)"
libraries="$(pkg-config --libs PETSc $library libxxhash yaml-0.1) $(mpicc --showme:link) -lm"
# The test is skipped only if clang cannot build any such program. If it cannot build ours, this is
# an error.
# shellcheck disable=SC2086
printf '#include <petscsys.h>\nint LLVMFuzzerTestOneInput(const uint8_t *data, size_t size);\nint LLVMFuzzerTestOneInput(const uint8_t *data, size_t size) { return data && size > 4096; }\n' |
  "$clang" $flags $includes -x c - -o "$build/probe_$target" $libraries || { echo "SKIPPED: clang cannot build a fuzz target here"; exit 0; }
# The parsers are compiled once for all targets, and again if a source is newer. Other targets that
# are being built wait.
(
  flock 9
  if [ ! -e "$build/parsers.a" ] || [ -n "$(find "$source/src" -name '*.[ch]' -newer "$build/parsers.a" -print -quit)" ]; then
    rm -rf "$build/parsers" "$build/parsers.a"
    mkdir "$build/parsers"
    cd "$build/parsers"
    set -- "$source"/src/core/*.c "$source"/src/core/*/*.c "$source"/src/io/*.c "$source"/src/io/*/*.c "$source"/src/spec/*.c "$source"/src/compute/for_each.c "$source"/src/embed/zch.c "$source"/src/embed/dynamic.c "$source"/src/embed/row_index.c "$source"/src/api/encode.c "$source"/src/api/encode_value.c "$source"/src/plan/plan_settings.c "$source"/src/plan/cost/topology.c "$source"/src/serve/kserve.c "$source"/src/serve/kserve_request.c "$source"/src/serve/request.c "$source"/src/serve/answer_text.c
    # shellcheck disable=SC2046,SC2086
    printf '%s\0' "$@" |
      xargs -0 -n 8 -P "$(nproc)" $(command -v ccache || true) "$clang" $checks -fsanitize=fuzzer-no-link,address,undefined $includes -c
    found=$(find . -name '*.o' | wc -l)
    [ "$found" = $# ] || { echo "run_fuzz.sh: $# sources have $found names: one object file replaced another" >&2; exit 1; }
    ar rcs "$build/parsers.a" ./*.o
  fi
) 9> "$build/parsers.lock"
# shellcheck disable=SC2086
"$clang" $flags $includes "$source/regression/fuzz/fuzz_$program.c" "$build/parsers.a" -o "$build/fuzz_$target" $libraries
PYTHONPATH="$source/regression/harness" PYTHONDONTWRITEBYTECODE=1 "$python" "$source/regression/fuzz/make_corpus.py" "$target" "$build/corpus_$target"
export ASAN_OPTIONS=detect_leaks=0
case $target in
checkpoint | delta) FUZZ_WRITE="$build/corpus_$target/checksums" "$build/fuzz_$target" ;;
esac
[ "$runs" != 0 ] || exit 0
cd "$build"
# new interesting inputs are not added to the corpus, so that a seed always gives the same inputs
found=$(mktemp -d "$build/found_XXXXXX")
trap 'rm -rf "$found"' EXIT
"./fuzz_$target" -runs="$runs" -max_len="$longest" -timeout=60 -rss_limit_mb=4096 -seed="${FUZZ_SEED:-1}" -verbosity=0 -print_final_stats=1 -artifact_prefix="$found/" \
  "$found" "corpus_$target"
