# SPDX-License-Identifier: BSD-3-Clause
"""Check that no kernel spills more registers than spills.txt allows.

    check_spills.py LOG SPILLS NVCC    LOG: output of a whole build with -Xptxas=-v

Spilled registers go to local memory, so a kernel that begins to spill loses speed without any other
sign. Exit codes: 0 every kernel is as allowed; 1 a kernel spills more, or the log has no kernels.
Another release of nvcc allocates registers in another way, so then nothing is checked.
"""
import re
import subprocess
import sys


def kernels(log):
    """The largest spill in bytes of each (kernel, architecture); instances of a template count together."""
    found, now = {}, None
    for line in log:
        if m := re.search(r"Compiling entry function '(\S+)' for '(sm_\d+)'", line):
            now = m.groups()
        elif now and (m := re.search(r"(\d+) bytes spill stores, (\d+) bytes spill loads", line)):
            found[now] = max(int(m[1]), int(m[2]))
            now = None
    names = subprocess.run(["c++filt"], input="\n".join(name for name, _ in found), capture_output=True, text=True, check=True)
    largest = {}
    for (_, arch), name, spilled in zip(found, names.stdout.splitlines(), found.values()):
        key = re.search(r"(\w+)(<.*>)?\(", name)[1], arch
        largest[key] = max(largest.get(key, 0), spilled)
    return largest


def allowed(path):
    """The release of nvcc, and the allowed bytes of each (kernel, architecture)."""
    rows = [line.split() for line in open(path, encoding="utf-8") if line.strip() and line[0] != "#"]
    (_, release), *rows = rows
    return release, {(kernel, arch): int(most) for kernel, arch, most in rows}


def main():
    log, spills, nvcc = sys.argv[1:]
    release, most = allowed(spills)
    version = subprocess.run([nvcc, "--version"], capture_output=True, text=True, check=True).stdout
    if f"release {release}," not in version:
        print(f"check_spills: not checked, {spills} is for nvcc {release}")
        return 0
    largest = kernels(open(log, encoding="utf-8", errors="replace"))
    wrong = [f"{kernel} for {arch} spills {n} bytes, at most {most.get((kernel, arch), 0)} are allowed"
             for (kernel, arch), n in sorted(largest.items()) if n > most.get((kernel, arch), 0)]
    wrong += [f"{kernel} for {arch} is in {spills}, but spills nothing" for kernel, arch in sorted(most) if not largest.get((kernel, arch))]
    if not largest:
        wrong.append(f"{log} names no kernels")
    print("\n".join(wrong) or f"check_spills: {len(largest)} kernels on their architectures, {len(most)} spill as allowed")
    return bool(wrong)


if __name__ == "__main__":
    sys.exit(main())
