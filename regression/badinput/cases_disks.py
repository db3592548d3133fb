# SPDX-License-Identifier: BSD-3-Clause
"""Full and read-only disks: small file systems in memory, which only root can mount."""
import glob
import os
import subprocess
import tempfile

from badinput import Case
from prepare import holds
from trsrun import check

BIG = "-tables_num_embeddings 10000"  # a checkpoint of 600 kB


def skip():
    with tempfile.TemporaryDirectory() as folder:
        if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", folder], stderr=subprocess.DEVNULL, check=False).returncode:
            return "no right to mount a small file system"
        subprocess.run(["umount", folder], check=True)
    return None


def disk(size, read_only=False, filled=False):
    """A prepare function: small/ is a disk of this size with an earlier result. It is read-only, or
    filled to the last byte."""
    def prepare(folder):
        small = os.path.join(folder, "small")
        os.makedirs(small)
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", small], check=True)
        for name in ("run.h5", "final.h5"):
            with open(os.path.join(folder, "out", name), "rb") as earlier, open(os.path.join(small, name), "wb") as out:
                out.write(earlier.read())
        if filled:
            with open(os.path.join(small, "filler"), "wb", buffering=0) as out:
                try:
                    while out.write(b"x" * 512):
                        pass
                except OSError:
                    pass
        if read_only:
            subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    return prepare


def nothing_new(folder, _):
    found = sorted(name for name in os.listdir(os.path.join(folder, "small")) if name not in ("run.h5", "final.h5", "filler", "ckpt"))
    check(not found, f"left on the disk: {found}")


def weights_kept(folder, result):
    """If another output cannot be written, the weights are still saved."""
    nothing_new(folder, result)
    check(os.path.exists(os.path.join(folder, "new.h5")) or glob.glob(os.path.join(folder, "kept", "step-*.h5")), f"no weights: {os.listdir(folder)}")


def case(name, status, message, options, prepare, **more):
    return Case(name, status, message, options, prepare, nothing_new, without=("-checkpoint_final",), **more)


PLAN = "-task plan -topology_world_size 2 -topology_compute_device cpu"


def earlier_plan(folder):
    """small/ is full, and holds the plan of an earlier run."""
    disk("128k")(folder)
    holds("small/run.h5", "an earlier plan\n")(folder)
    subprocess.run(["dd", "if=/dev/zero", f"of={folder}/small/filler", "bs=1k"], stderr=subprocess.DEVNULL, check=False)


CASES = [
    case("plan_on_a_full_disk", 74, r"-plan_output .*small/run\.h5 can't be written: No space left", f"{PLAN} -plan_output small/run.h5", earlier_plan, ranks=1),
    case("report_on_a_full_disk", 74, r"-plan_report .*small/run\.h5 can't be written: No space left", "-plan_report small/run.h5", earlier_plan),
    case("search_space_on_a_full_disk", 74, r"-plan_search_space .*small/run\.h5 can't be written", "-plan_search_space small/run.h5", earlier_plan, ranks=3),
    case("topology_on_a_full_disk", 74, r"-bench_topology .*small/run\.h5 can't be written",
         "-task bench -bench_bytes 1KiB -bench_table_bytes 1MiB -bench_topology small/run.h5", earlier_plan),
    case("results_on_a_full_disk", 74, r"small/run\.h5", "-output small/run.h5", disk("128k", filled=True)),
    case("results_on_a_full_disk_three_ranks", 74, r"small/run\.h5", "-output small/run.h5", disk("128k", filled=True), ranks=3),
    Case("results_on_a_full_disk_weights_kept", 74, r"small/run\.h5", "-output small/run.h5 -checkpoint_final new.h5 -checkpoint_dir kept -checkpoint_every 2",
         disk("128k", filled=True), weights_kept),
    Case("trace_on_a_full_disk_weights_kept", 74, r"small/run\.h5 cannot be written: No space left",
         "-trace small/run.h5 -trace_first_step 0 -trace_steps 2 -checkpoint_final new.h5", disk("128k", filled=True), weights_kept, ranks=3),
    Case("results_on_a_full_disk_last_weights_kept", 74, r"small/run\.h5", "-output small/run.h5 -checkpoint_final new.h5", disk("128k", filled=True), weights_kept),
    case("checkpoint_on_a_small_disk", 74, r"small/final\.h5: the disk is too small: \d+ bytes are needed, \d+ are free",
         f"-checkpoint_final small/final.h5 {BIG}", disk("256k")),
    Case("final_on_a_full_disk_folder_kept", 74, r"small/final\.h5: the disk is too small", f"-checkpoint_final small/final.h5 -checkpoint_dir kept {BIG}",
         disk("256k"), weights_kept, without=("-checkpoint_final",), ranks=3),
    Case("best_on_a_full_disk_folder_kept", 74, r"small/final\.h5: the disk is too small",
         f"-checkpoint_best small/final.h5 -checkpoint_dir kept -data_eval train.h5 -eval_every 2 {BIG}", disk("256k"), weights_kept, without=("-checkpoint_final",), ranks=2),
    case("checkpoint_on_a_full_disk", 74, r"small/final\.h5", "-checkpoint_final small/final.h5", disk("128k", filled=True)),
    case("checkpoint_folder_on_a_small_disk", 74, r"small/ckpt/step-000000001\.h5: the disk is too small",
         f"-checkpoint_dir small/ckpt -checkpoint_every 1 {BIG}", disk("256k")),
    case("results_on_a_read_only_disk", 73, r"small/run\.h5 cannot be created: Read-only file system", "-output small/run.h5", disk("128k", read_only=True)),
    case("checkpoint_on_a_read_only_disk", 73, r"small/final\.h5 cannot be created: Read-only", "-checkpoint_final small/final.h5", disk("128k", read_only=True)),
    case("checkpoint_folder_on_a_read_only_disk", 73, r"small/ckpt.*Read-only", "-checkpoint_dir small/ckpt -checkpoint_every 1", disk("128k", read_only=True)),
]
