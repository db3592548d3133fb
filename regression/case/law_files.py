# SPDX-License-Identifier: BSD-3-Clause
"""Runs with special files: on a file system without locks, of another user, and with numbers out of
range."""
import fcntl
import os
import re
import shutil
import subprocess

import h5py
import numpy as np

from trsrun import Skipped, check, check_same_tensors, run, thin, thinned, write_dataset

MODEL = "-tables_embedding_dim 8 -dense_arch 16,8 -over_arch 16,1 -seed 3 -batch_size 8 -data_train train.h5"
NO_LOCKS = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <stdarg.h>
#include <stdlib.h>
static int refuse(void) { errno = atoi(getenv("NO_LOCKS")); return -1; }
int flock(int fd, int operation) { (void)fd; (void)operation; return refuse(); }
static int control(const char *name, int fd, int command, void *argument)
{
  int (*next)(int, int, ...) = (int (*)(int, int, ...))dlsym(RTLD_NEXT, name);
  if (command == F_SETLK || command == F_SETLKW || command == F_GETLK || command == F_OFD_SETLK || command == F_OFD_SETLKW || command == F_OFD_GETLK)
    return refuse();
  return next(fd, command, argument);
}
#define CONTROL(name) int name(int fd, int command, ...) { va_list a; void *x; va_start(a, command); x = va_arg(a, void *); va_end(a); return control(#name, fd, command, x); }
CONTROL(fcntl)
CONTROL(fcntl64)
"""


def without_locks(folder, error):
    """The environment of a program on a file system whose locks fail with this error."""
    if not shutil.which("cc"):
        raise Skipped("no compiler")
    with open(os.path.join(folder, "no_locks.c"), "w", encoding="ascii") as out:
        out.write(NO_LOCKS)
    path = os.path.join(folder, "no_locks.so")
    subprocess.run(["cc", "-shared", "-fPIC", "no_locks.c", "-o", path, "-ldl"], cwd=folder, check=True)
    return {"LD_PRELOAD": path, "NO_LOCKS": str(error)}


@thinned
def test_no_locks(binary, folder):
    """On a file system without locks, every task works as elsewhere. One message says that the
    folder is not protected from other jobs."""
    write_dataset(os.path.join(folder, "train.h5"), 80)
    words = f"{MODEL} -data_eval train.h5 -steps 6 -output run.h5 -checkpoint_every 2 -checkpoint_keep 2"
    run(binary, 2, f"{words} -checkpoint_dir with -checkpoint_final with.h5", folder)
    # ENOLCK, EOPNOTSUPP, the kernel's ENOTSUPP, EIO
    for error in thin((37, 95, 524, 5), (37, 524)):
        environment = without_locks(folder, error)
        for more, ranks in ((f"-checkpoint_dir c{error} -checkpoint_final without.h5", 2), (f"-checkpoint_dir c{error} -resume -steps 8", 1)):
            text = run(binary, ranks, f"{words} {more}", folder, environment=environment).text
            said = [line for line in text.splitlines() if "no locks" in line]
            check(len(said) == 1 and f"c{error}" in said[0] and "another job" in said[0] and "nknown error" not in said[0], f"errno {error}: {said}\n{text[-1500:]}")
        check_same_tensors(os.path.join(folder, "with.h5"), os.path.join(folder, "without.h5"), f"errno {error}")
        for task in ("-task eval -init_from without.h5", "-task predict -init_from without.h5 -output predicted.h5"):
            text = run(binary, 2, f"{MODEL} -data_eval train.h5 {task}", folder, environment=environment).text
            check("no locks" not in text, f"reading needs no lock:\n{text}")


def test_names_with_commas(binary, folder):
    """In each list of files, a path with a comma is written in double quotes: on the command line,
    in option files, and in the options of the results."""
    for i, name in enumerate(("a,b.h5", ",c\".h5", "d.h5")):
        write_dataset(os.path.join(folder, name), 40, seed=i)
    words = MODEL.replace("-data_train train.h5", "")
    run(binary, 1, f"{words} -data_train a,b.h5 -steps 1", folder, status=66)
    lists = {"line": """-data_train '"a,b.h5",",c"".h5",d.h5' -data_eval '"a,b.h5"'""", "opts": "-options_file data.opts", "yaml": "-options_file data.yaml"}
    with open(os.path.join(folder, "data.opts"), "w", encoding="ascii") as out:
        out.write('-data_train """a,b.h5"","",c"""".h5"",d.h5"\n-data_eval """a,b.h5"""\n')
    with open(os.path.join(folder, "data.yaml"), "w", encoding="ascii") as out:
        out.write("""data_train: ["a,b.h5", ',c".h5', d.h5]\ndata_eval: ["a,b.h5"]\n""")
    for name, given in lists.items():
        text = run(binary, 1, f"{words} {given} -epochs 1 -output {name}.h5", folder).text
        check("120 samples" in text and "40 samples" in text, f"{name}:\n{text[-2000:]}")
        with h5py.File(os.path.join(folder, f"{name}.h5")) as h, open(os.path.join(folder, "again.opts"), "w", encoding="utf-8") as out:
            out.write(h.attrs["options"])
        text = run(binary, 1, f"-options_file again.opts -output again-{name}.h5", folder).text
        check("120 samples" in text, f"{name}, again:\n{text[-2000:]}")


def test_locked_by_a_writer(binary, folder):
    """A dataset that another program is writing is not read, and the message says this."""
    path = os.path.join(folder, "train.h5")
    write_dataset(path, 80)
    with open(path, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        for ranks in (1, 2):
            text = run(binary, ranks, f"{MODEL} -steps 1", folder, status=65).text
            check("still being written" in text and "lock" in text and "damaged" not in text, text)
    run(binary, 1, f"{MODEL} -steps 1", folder)


LARGE = (2**63 - 1, 2**63 - 2, 2**62, 10**17, -1, -2**63)
COUNTERS = ("step", "epoch", "samples_seen", "run_step", "global_batch", "epoch_steps", "data_samples", "evaluation_due")


@thinned
def test_numbers_out_of_range(binary, folder):
    """If a checkpoint's counter, a history's step or a plan's size is impossible, it is bad data,
    and the message names it."""
    write_dataset(os.path.join(folder, "train.h5"), 80)
    words = f"{MODEL} -steps 4 -output run.h5"
    run(binary, 1, f"{words} -checkpoint_every 2 -checkpoint_dir good -plan_output plan.json", folder)
    os.rename(os.path.join(folder, "run.h5"), os.path.join(folder, "history.h5"))
    for name in COUNTERS:
        for value in thin(LARGE, LARGE[:1] + LARGE[4:5]):
            shutil.rmtree(os.path.join(folder, "bad"), ignore_errors=True)
            os.mkdir(os.path.join(folder, "bad"))
            path = os.path.join(folder, "bad", "step-000000004.h5")
            shutil.copyfile(os.path.join(folder, "good", "step-000000004.h5"), path)
            with h5py.File(path, "r+", libver="latest") as h:
                del h["checksums"]
                h.attrs[name] = np.int64(value)
            for more in ("-resume -checkpoint_dir bad -steps 6", f"-init_from {path}"):
                text = run(binary, 1, f"{words} {more}", folder, status=65).text
                check(f"step-000000004.h5: {name} {value}, expected" in text, f"{name} {value}:\n{text}")
    for group in ("train", "starts"):
        for value in LARGE[:1] + LARGE[4:5]:
            shutil.copyfile(os.path.join(folder, "history.h5"), os.path.join(folder, "run.h5"))
            with h5py.File(os.path.join(folder, "run.h5"), "r+", libver="latest") as h:
                h[f"{group}/{'step' if group == 'train' else 'start'}"][0] = value
            text = run(binary, 1, f"{words} -resume -checkpoint_dir good", folder).text
            check("history begins anew" in text and f"{value}" in text, f"{group} {value}:\n{text}")
    with open(os.path.join(folder, "plan.json"), encoding="utf-8") as file:
        plan = file.read()
    for key, value in (('"hbm": ', 2**63 - 1), ('"proposals": ', 2**63 - 1), ('"size": [', 2**63 - 1), ('"offset": [', 2**63 - 1), ('"rank": ', 2**31), ('"world_size": ', 2**31)):
        at = plan.index(key) + len(key)
        end = at + len(re.match(r"-?\d+", plan[at:])[0])
        with open(os.path.join(folder, "bad.json"), "w", encoding="utf-8") as out:
            out.write(plan[:at] + str(value) + plan[end:])
        text = run(binary, 1, f"{words} -plan_input bad.json", folder, status=65).text
        check("bad.json" in text and str(value) in text, f"{key}{value}:\n{text}")


@thinned
def test_other_users_files(binary, folder):
    """Another user's option files, checkpoints and plans in a folder that everyone may write to are
    refused, unless an option trusts them."""
    if os.geteuid() != 0:
        raise Skipped("only root can give files to another user")
    other = 54321
    write_dataset(os.path.join(folder, "train.h5"), 80)
    run(binary, 1, f"{MODEL} -steps 2 -checkpoint_dir mine -plan_output mine.json", folder)
    for name, mode in thin((("open", 0o777), ("sticky", 0o1777), ("theirs", 0o755), ("closed", 0o755)), (("open", 0o777), ("theirs", 0o755), ("closed", 0o755))):
        place = os.path.join(folder, name)
        shutil.copytree(os.path.join(folder, "mine"), place)
        shutil.copyfile(os.path.join(folder, "mine.json"), os.path.join(place, "plan.json"))
        with open(os.path.join(place, "run.opts"), "w", encoding="ascii") as out:
            out.write("-steps 3\n")
        for file in os.listdir(place):
            os.chown(os.path.join(place, file), other, -1)
        if name == "theirs":  # also in a folder that everyone may write to
            os.mkdir(os.path.join(folder, "public"))
            os.rename(place, os.path.join(folder, "public", name))
            place = os.path.join(folder, "public", name)
            os.chown(place, other, -1)
            os.chmod(os.path.join(folder, "public"), 0o1777)
        os.chmod(place, mode)
        for words, file in ((f"-steps 3 -resume -checkpoint_dir {place}", "step-000000002.h5"), (f"-steps 1 -init_from {place}/step-000000002.h5", "step-000000002.h5"),
                            (f"-options_file {place}/run.opts", "run.opts"), (f"-steps 1 -plan_input {place}/plan.json", "plan.json")):
            result = run(binary, 2 if name == "open" else 1, f"{MODEL} {words}", folder, status=0 if name == "closed" else 64)
            check(name == "closed" or re.search(rf"{file} belongs to user 54321, and all users may write to \S*(open|sticky|public): .*-trust_other_users", result.text), f"{name}, {words}:\n{result.text}")
            if name == "open":
                run(binary, 1, f"{MODEL} {words.replace('-resume', '-resume -trust_other_users').replace('-init', '-trust_other_users true -init').replace('-opt', '-trust_other_users yes -opt').replace('-plan', '-trust_other_users -plan')}", folder)
                os.chown(os.path.join(place, "step-000000002.h5"), other, -1)
    os.chown(os.path.join(folder, "open", "run.opts"), 0, -1)
    os.chmod(os.path.join(folder, "open"), 0o777)
    with open(os.path.join(folder, "trust.opts"), "w", encoding="ascii") as out:
        out.write("-trust_other_users\n")
    run(binary, 1, f"{MODEL} -steps 1 -options_file trust.opts -init_from open/step-000000002.h5", folder)
