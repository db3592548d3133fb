#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# deb.sh BUILD SCRATCH - the Debian package that cpack makes: its fields, its content, and the program in it from where it was
# unpacked. Exit 77: skipped.
set -euo pipefail
build=$1 scratch=$2
fail() {
  echo "deb.sh: $*" >&2
  exit 1
}
for tool in cpack dpkg-deb dpkg-shlibdeps file; do
  command -v "$tool" > /dev/null || { echo "skipped: no $tool here"; exit 77; }
done
rm -rf "$scratch"
mkdir -p "$scratch"
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$scratch" > "$scratch/cpack.log" 2>&1 || { cat "$scratch/cpack.log"; fail "cpack"; }
package=$(echo "$scratch"/trshard_*_*.deb)
version=$("$build/trshard" -version | cut -d' ' -f2)
[ "$(dpkg-deb -f "$package" Version Package Section)" = "$(printf 'Version: %s\nPackage: trshard\nSection: science' "$version")" ] || fail "fields: $(dpkg-deb -f "$package")"
for name in libpetsc libhdf5 libjansson libhwloc libyaml libxxhash libc6 python3-h5py python3-numpy; do # found by dpkg-shlibdeps, and named
  dpkg-deb -f "$package" Depends | grep -q "$name" || fail "no dependency $name: $(dpkg-deb -f "$package" Depends)"
done
dpkg-deb --ctrl-tarfile "$package" | tar -xO ./postinst 2> /dev/null | grep -q ldconfig || dpkg-deb --ctrl-tarfile "$package" | tar -xO ./triggers | grep -q ldconfig || fail "the library's cache is not renewed"
dpkg-deb -x "$package" "$scratch/root"
[ -z "$(find "$scratch/root" ! -type l ! -perm -a=r -o -type d ! -perm -a=x)" ] || fail "others cannot read some files"
! find "$scratch/root" -path "$scratch/root/usr" -prune -o -type f -print | grep . || fail "files outside of /usr"
! file "$scratch/root/usr/bin/trshard" | grep -q 'not stripped' || fail "the program has its debugging symbols"
cd "$scratch"
PATH=$scratch/root/usr/bin:$PATH
[ "$(trshard -version | cut -d' ' -f2)" = "$version" ] || fail "the program has another version"
trshard-generate --output d.h5 --num-samples 64 --features 2 --num-embeddings 100 > tool.log
trshard -data_train d.h5 -tables_embedding_dim 4 -dense_arch 4 -over_arch 4,1 -batch_size 8 -output run.h5 > run.log || { cat run.log; fail "the program does not train"; }
trshard-report run.h5 -o run.html
trshard-quickstart --help | grep -q 'trained and evaluated model' || fail "no quick start"
echo "$(basename "$package"): $(stat -c %s "$package") bytes, $(dpkg-deb -f "$package" Installed-Size) KiB installed"
