# SPDX-License-Identifier: BSD-3-Clause
"""Hosts that differ in files, processors or threads, and a reader of the output that pauses.

Rank 1 simulates another host with its own mounts, which needs root and unshare.
"""
import fcntl
import os
import re
import shutil
import signal
import subprocess
import sys
import time

import h5py

from law_plans import FEATURES, MIXED, MODEL, TABLES, make, train
from trsrun import Skipped, check, check_same_tensors, load, losses, patience, run, same_bits, write_dataset

ALONE = 'if [ "${OMPI_COMM_WORLD_RANK:-0}" = 1 ]; then export'
WORDS = f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES}"


def apart(binary, folder, mount):
    """A program that runs the binary, with this mount only for rank 1."""
    if os.geteuid() != 0 or subprocess.run(["unshare", "-m", "sh", "-c", "mkdir -p there && mount -t tmpfs none there"], cwd=folder, check=False,
                                           capture_output=True).returncode != 0:
        raise Skipped("no right to mount, or no unshare")
    path = os.path.join(folder, "apart.sh")
    with open(path, "w", encoding="ascii") as out:
        out.write(f"""#!/bin/sh
[ "$OMPI_COMM_WORLD_RANK" = 1 ] || exec {binary} "$@"
exec unshare -m sh -c '{mount} && exec {binary} "$@"' rank "$@"
""")
    os.chmod(path, 0o755)
    return path


def refused(binary, folder, options, status, *patterns):
    result = run(binary, 2, f"{WORDS} {options}", folder, status=status)
    messages = [line for line in result.text.splitlines() if "trshard: error" in line]
    check(len(messages) == 1 and all(re.search(pattern, messages[0]) for pattern in patterns), f"expected {patterns}:\n{result.text[-2000:]}")
    check("step 1/" not in result.text, "the training began")


def test_checkpoints_not_shared(binary, folder):
    """If the other host lacks the checkpoints' path, the run is refused at the start with the rank
    and the host, and no file is left there."""
    make(folder)
    os.makedirs(os.path.join(folder, "there"))
    other = apart(binary, folder, "mount -t tmpfs none there")
    for option, name in (("-checkpoint_final", "final.h5"), ("-checkpoint_dir", "ckpt")):
        refused(other, folder, f"-steps 3 {option} there/{name}", 73, rf"there/{name} cannot be written by all ranks: rank 1 on host \S+", "All hosts need one file system")
        left = [file for _, _, files in os.walk(os.path.join(folder, "there")) for file in files if file != ".trshard-lock"]
        check(not left, f"left: {left}")


def test_data_differs(binary, folder):
    """If the other host has a different copy of the data, the run is refused with the file, the
    rank and the difference. An equal copy is accepted."""
    make(folder)
    path, file = (os.path.join(folder, name) for name in ("train.h5", "other.h5"))
    other = apart(binary, folder, "mount --bind other.h5 train.h5")
    for pattern, changes in (("120 samples, rank 0 has 200", {"samples": 120}), ("1 features, rank 0 has 5", {"features": {"user": 50}}),
                             ("5000 num_embeddings of feature tag, rank 0 has 20", {"features": {**FEATURES, "tag": 5000}}),
                             ("other names of features than rank 0", {"features": {name.upper(): rows for name, rows in FEATURES.items()}}),
                             ("2 columns of /dense, rank 0 has 3", {"num_dense": 2})):
        write_dataset(file, **{"samples": 200, "features": FEATURES, **changes})
        refused(other, folder, "-steps 3", 65, rf"train\.h5: rank 1 on host \S+ has {pattern}")
    shutil.copyfile(path, file)
    run(other, 2, f"{WORDS} -steps 3", folder)
    for name in ("labels", "sparse/values", "dense"):
        shutil.copyfile(path, file)
        with h5py.File(file, "r+") as h:
            h[name][-1] = 1 - h[name][-1] if name == "labels" else h[name][-2]
        refused(other, folder, "-steps 3", 65, r"train\.h5: rank 1 on host \S+ has other samples than rank 0")


def test_other_processors(binary, folder):
    """Ranks with different instruction sets and threads: the banner names both. With -reproducible,
    all ranks use the smallest set, with the bits of a run that uses this set."""
    make(folder)
    prelude = f"{ALONE} TRSHARD_ISA=portable OMP_NUM_THREADS=2; fi; "
    text = run(binary, 2, f"{WORDS} -steps 3 -cpu_bind none", folder, prelude=prelude).text
    best = re.search(r"\((\w+), 1 thread a rank\)", run(binary, 2, f"{WORDS} -steps 1 -cpu_bind none", folder).text)[1]
    mix = "portable" if best == "portable" else f"portable to {best}"
    check(f"({mix}, 1 to 2 threads a rank)" in text and "2 ranks x 1 to 2 threads" in text, text[-2000:])
    text = run(binary, 2, f"{WORDS} -steps 3 -reproducible -checkpoint_final mixed.h5", folder, prelude=prelude).text
    check(best == "portable" or "(portable, the best that all ranks have, 1 to 2 threads a rank)" in text, text[-2000:])
    run(binary, 2, f"{WORDS} -steps 3 -reproducible -checkpoint_final plain.h5 -cpu_isa portable", folder)
    check_same_tensors(os.path.join(folder, "mixed.h5"), os.path.join(folder, "plain.h5"), "ranks of two kinds")


def start(binary, folder, options, **more):
    words = f"-data_train train.h5 -batch_size 24 {MODEL} {TABLES} -steps 1000000000 -checkpoint_dir ckpt {options}"
    return subprocess.Popen([binary] + words.split(), cwd=folder, **more)


def test_paused_reader(binary, folder):
    """A reader of the output that pauses does not stop the training, or its process in the middle
    of a line. One message reports the pause."""
    make(folder)
    path = os.path.join(folder, "run.h5")
    for options, told in (("-report_interval 0 -output run.h5 -output_every 0.05", False), ("-report_interval 60 -checkpoint_every 1", True)):
        read, write = os.pipe()
        fcntl.fcntl(write, 1031, 4096)  # F_SETPIPE_SZ: the pipe is full after a few lines
        watchdog_s = round(2 * min(load(), 4))
        shutil.rmtree(os.path.join(folder, "ckpt"), ignore_errors=True)
        with start(binary, folder, f"{options} -watchdog_seconds {watchdog_s}", stdout=write, stderr=subprocess.PIPE, text=True) as process:
            os.close(write)
            if told:
                line = process.stderr.readline()
                check("nobody reads its standard output" in line, f"no word of the pause: {line}")
            else:  # more steps than the pipe has room for lines
                end = time.monotonic() + 30 * patience()
                while not os.path.exists(path) or len(losses(path)) < 200:
                    check(process.poll() is None and time.monotonic() < end, f"exit {process.returncode}: no 200 steps")
                    time.sleep(0.05)
                time.sleep(1.5 * watchdog_s)
            check(process.poll() is None, f"exit {process.returncode} of a paused reader")
            process.send_signal(signal.SIGTERM)
            text = b""
            while block := os.read(read, 65536):  # the reader continues
                text += block
            os.close(read)
            error = process.stderr.read()
            check(process.wait(30 * patience()) == 75 and "nobody reads" not in error, f"exit {process.returncode}: {error[-1000:]}")
        if not told:
            last = int(re.findall(r"stopped on request after step (\d+)", error)[0])
            check(text.count(b"\nstep ") < last, "no line was left out")


HOSTS = os.path.join(os.path.dirname(os.path.abspath(__file__)), "..", "..", "tools", "trshosts.py")


def on_hosts(folder, *command):
    """(process, inode of the namespace) of a command on two hosts with a network of their own."""
    process = subprocess.Popen([sys.executable, HOSTS, "--hosts", "2", "--gbps", "1", *command], cwd=folder, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                               text=True, env={**os.environ, "TMPDIR": folder})
    line = process.stdout.readline()
    found = re.fullmatch(r"# 2 hosts on a switch in the network namespace (\d+)\n", line)
    if not found:
        process.communicate()
        check(process.returncode == 77, f"{process.returncode}: {line}")
        raise Skipped(line.strip())
    return process, int(found[1])


def uses(namespace):
    """Processes in a network namespace, apart from those that ended while /proc was read."""
    found = []
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            if os.stat(f"/proc/{pid}/ns/net").st_ino == namespace:
                found.append(pid)
        except OSError:
            pass
    return found


def check_removed(namespace, what):
    end = time.monotonic() + 30 * patience()
    while (left := uses(namespace)) and time.monotonic() < end:  # another one may get its number later
        time.sleep(0.05)
    check(not left, f"{what}: processes {left} still use the namespace")


def test_network_hosts(binary, folder):
    """Two hosts with a network namespace each give the bits of one host: the ranks share no memory
    and exchange by TCP. The namespaces are gone at the end."""
    make(folder)
    wanted, state = train(binary, folder, "one", 2, f"{MIXED} -steps 8 -reproducible")
    process, namespace = on_hosts(folder, binary, *(f"-data_train train.h5 -batch_size 12 -output two.h5 -checkpoint_final two.final.h5 {MODEL} {TABLES} {MIXED} "
                                                    "-steps 8 -reproducible").split())
    text, _ = process.communicate(timeout=120 * patience())
    check(process.returncode == 0 and "2 hosts of 1 rank" in text and "\nmessages " in text, f"{process.returncode}:\n{text[-3000:]}")
    check(same_bits(losses(os.path.join(folder, "two.h5")), wanted), "other losses")
    check_same_tensors(os.path.join(folder, "two.final.h5"), state, "two hosts")
    check_removed(namespace, "a run that ended")


def test_network_hosts_removed(binary, folder):
    """The namespaces and their processes also end if the run fails, which gives its exit code, and
    if the tool is interrupted or killed."""
    make(folder)
    process, namespace = on_hosts(folder, binary, "-no_such_option", "1")
    text, _ = process.communicate(timeout=120 * patience())
    check(process.returncode == 64 and "-no_such_option" in text, f"{process.returncode}:\n{text[-3000:]}")
    check_removed(namespace, "a run that failed")
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        process, namespace = on_hosts(folder, binary, *f"-data_train train.h5 -batch_size 12 {MODEL} {TABLES} -steps 100000000 -report_interval 0.05".split())
        while "step " not in (line := process.stdout.readline()):
            check(line, f"no step, exit code {process.poll()}")
        check(len(uses(namespace)) >= 2, "mpirun and the keeper are not in the namespace")
        process.send_signal(number)
        process.stdout.close()
        process.wait(timeout=60 * patience())
        check_removed(namespace, signal.Signals(number).name)


def test_network_hosts_seconds(binary, folder):
    """A benchmark knows the processors' time of the ranks on its hosts. Otherwise it would take
    them for other programs that disturb it."""
    del binary
    sys.path.insert(0, os.path.dirname(HOSTS))
    import bench_common
    import trshosts
    if trshosts.why_not():
        raise Skipped(trshosts.why_not())
    program = os.path.join(folder, "compute.py")
    with open(program, "w", encoding="ascii") as out:
        out.write("import time\nwhile time.process_time() < 1: pass\n")
    with trshosts.Hosts(2) as hosts:
        def seconds():
            return bench_common.processor_seconds()[2] + hosts.processor_seconds()
        before = seconds()
        bench_common.output_of(hosts.mpirun(sys.executable, program))
        check(seconds() - before >= 1.9, f"{seconds() - before} of 2 s")
