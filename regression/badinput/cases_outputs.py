# SPDX-License-Identifier: BSD-3-Clause
"""Outputs that cannot be created. They are found before the first step, not after the last one."""
import os

from badinput import Case
from trsrun import check


def before_training(_, result):
    check("step 3/3" not in result.text, f"trained first:\n{result.text[-2000:]}")


def not_reached(_, result):
    check("which this run did not reach" in result.text, f"nothing said of an empty trace:\n{result.text[-2000:]}")


def fifo(folder):
    os.mkfifo(os.path.join(folder, "pipe.h5"))


def file_for_folder(folder):
    with open(os.path.join(folder, "ckpt"), "w", encoding="ascii") as out:
        out.write("earlier\n")


def link(folder):
    """link.h5 -> victim.h5: what it points to must not be written through the link."""
    with open(os.path.join(folder, "victim.h5"), "w", encoding="ascii") as out:
        out.write("precious\n")
    os.symlink("victim.h5", os.path.join(folder, "link.h5"))


def victim_is_whole(folder, _):
    check(open(os.path.join(folder, "victim.h5"), encoding="ascii").read() == "precious\n", "victim.h5 was written")


def left_over(folder):
    """What a killed run of the same name left behind, and a file of somebody else's."""
    for name in (".run.h5.0123456789abcdef.tmp", ".other.h5.0123456789abcdef.part"):
        with open(os.path.join(folder, "out", name), "w", encoding="ascii") as out:
            out.write("rubbish")


def only_own_removed(folder, _):
    check(os.path.exists(os.path.join(folder, "out", ".other.h5.0123456789abcdef.part")), "a file of another name was removed")


CASES = [
    Case("output_folder_missing", 73, r"none/run\.h5 cannot be created: No such file", "-output none/run.h5", after=before_training),
    Case("output_folder_missing_three_ranks", 73, r"none/run\.h5", "-output none/run.h5", ranks=3),
    Case("output_is_a_folder", 73, r"out cannot be created: something that is not a file", "-output out", after=before_training),
    Case("output_names_a_folder", 73, r"out/ cannot be created: it names a folder", "-output out/"),
    Case("output_is_a_fifo", 73, r"pipe\.h5 cannot be created: something that is not a file", "-output pipe.h5", fifo),
    Case("output_is_a_device", 73, r"/dev/full cannot be created", "-output /dev/full"),
    Case("output_below_a_file", 73, r"train\.h5/run\.h5 cannot be created: Not a directory", "-output train.h5/run.h5"),
    Case("output_name_too_long", 73, r"cannot be created: File name too long", f"-output out/{'x' * 300}/run.h5"),
    Case("output_is_a_link", 0, "", "-output link.h5", link, victim_is_whole),
    Case("output_with_left_overs", 0, "", "", left_over, only_own_removed),
    Case("evaluation_output_folder_missing", 73, r"none/run\.h5", "-task eval -data_eval train.h5 -init_from out/final.h5 -output none/run.h5"),
    Case("final_folder_missing", 73, r"none/final\.h5 cannot be created: No such file", "-checkpoint_final none/final.h5", after=before_training),
    Case("final_is_a_folder", 73, r"out cannot be created: something that is not a file", "-checkpoint_final out", after=before_training),
    Case("final_is_a_link", 0, "", "-checkpoint_final link.h5", link, victim_is_whole),
    Case("checkpoint_dir_is_a_file", 73, r"ckpt is not a folder|ckpt.*cannot be", "-checkpoint_dir ckpt -checkpoint_every 1", file_for_folder),
    Case("checkpoint_dir_below_a_file", 73, r"train\.h5/ckpt", "-checkpoint_dir train.h5/ckpt -checkpoint_every 1"),
    Case("trace_folder_missing", 73, r"none/trace\.json cannot be created: No such file", "-trace none/trace.json", ranks=3, after=before_training),
    Case("trace_is_a_folder", 73, r"out cannot be created: something that is not a file", "-trace out", after=before_training),
    Case("trace_is_a_device", 73, r"/dev/full cannot be created", "-trace /dev/full"),
    Case("trace_negative_first_step", 64, r'-trace_first_step "-1"', "-trace trace.json -trace_first_step -1"),
    Case("trace_no_steps", 64, r'-trace_steps "0" .*in \[1,', "-trace trace.json -trace_steps 0"),
    Case("trace_steps_text", 64, r'-trace_steps "ten"', "-trace trace.json -trace_steps ten"),
    Case("trace_far_away", 0, "", "-trace trace.json -trace_first_step 9223372036854775807 -trace_steps 1000000000", after=not_reached),
    Case("plan_output_folder_missing", 73, r"-plan_output .*none/plan\.json can't be created", "-plan_output none/plan.json"),
    Case("plan_report_folder_missing", 73, r"-plan_report .*none/report\.txt can't be created", "-plan_report none/report.txt"),
]
