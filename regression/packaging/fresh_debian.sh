#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# fresh_debian.sh BUILD SCRATCH - the package that cpack makes, on a new minimal system of this machine's Debian in a chroot: apt-get
# installs it with all that it needs, and trshard-quickstart trains, evaluates and plots. Exit 77: skipped.
set -euo pipefail
build=$1 scratch=$2
skip() {
  echo "skipped: $*"
  exit 77
}
[ "$(id -u)" = 0 ] || skip "a chroot needs root"
PATH=$PATH:/usr/sbin:/sbin
for tool in debootstrap cpack dpkg-deb file unshare; do
  command -v "$tool" > /dev/null || skip "no $tool here"
done
# shellcheck disable=SC1091 # the system's own file
. /etc/os-release
[ "$ID" = debian ] || skip "$PRETTY_NAME is not Debian"
root=$scratch/root
rm -rf --one-file-system "$scratch"
mkdir -p "$scratch"
trap 'rm -rf --one-file-system "$root"' EXIT
cpack -G DEB --config "$build/CPackConfig.cmake" -B "$scratch" > "$scratch/cpack.log" 2>&1 || { cat "$scratch/cpack.log"; exit 1; }
debootstrap --variant=minbase "$VERSION_CODENAME" "$root" > "$scratch/debootstrap.log" 2>&1 || skip "debootstrap cannot load Debian: $(tail -n 1 "$scratch/debootstrap.log")"
for file in /etc/resolv.conf /etc/hosts /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources; do
  [ ! -s "$file" ] || cp -L "$file" "$root$file"
done
cp "$scratch"/trshard_*.deb "$root/root/"
cat > "$root/root/run.sh" << 'END'
set -eu
cd /root
apt-get update -q
DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends ./trshard_*.deb python3-matplotlib python3-tqdm
mkdir work
cd work
trshard-quickstart
for name in train.h5 eval.h5 model.h5 plan.json loss.png plan.png; do
  test -s results/quickstart/$name
done
dpkg --verify trshard
apt-get remove -y -q trshard
test ! -e /usr/bin/trshard
echo fresh: all of it
END
# shellcheck disable=SC2016 # for the inner shell
unshare --mount --pid --uts --fork sh -c 'hostname fresh; mount --make-rprivate /
  mount -t proc proc "$1/proc"; mount --rbind /sys "$1/sys"; mount --rbind /dev "$1/dev"; mount -t tmpfs -o mode=1777 tmp "$1/tmp"
  exec chroot "$1" /usr/bin/env -i HOME=/root TERM=dumb LANG=C.UTF-8 PATH=/usr/sbin:/usr/bin:/sbin:/bin sh /root/run.sh' sh "$root" > "$scratch/run.log" 2>&1 || true
tail -n 40 "$scratch/run.log"
grep -qx 'fresh: all of it' "$scratch/run.log"
