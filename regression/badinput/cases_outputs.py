# SPDX-License-Identifier: BSD-3-Clause
"""Outputs that cannot be created. The program detects this before the first step, not after the
last."""
import os
import shutil

from badinput import Case
from prepare import edit_checkpoint, fifo, holds
from trsrun import attribute, check, losses


def before_training(_, result):
    check("step 3/3" not in result.text, f"trained first:\n{result.text[-2000:]}")


def not_reached(_, result):
    check("which this run did not reach" in result.text, f"nothing said of an empty trace:\n{result.text[-2000:]}")


def link(folder):
    """link.h5 -> victim.h5: the output that is written to the link replaces victim.h5."""
    holds("victim.h5", "precious\n")(folder)
    os.symlink("victim.h5", os.path.join(folder, "link.h5"))


def through_link(folder, _):
    """A check: the link stays, and points to the new file."""
    check(os.path.islink(os.path.join(folder, "link.h5")), "the link is gone")
    with open(os.path.join(folder, "victim.h5"), "rb") as file:
        check(file.read() != b"precious\n", "victim.h5 is what it was")


def victim_is_kept(folder, result):
    """A check: the link stays and points to the new file, and the link's old target is a backup
    beside the new file."""
    through_link(folder, result)
    check(open(os.path.join(folder, "victim.h5.~1~"), encoding="ascii").read() == "precious\n", "victim.h5 is lost")


def left_over(folder):
    """Files that a killed run of the same name left, and another program's file."""
    for name in (".run.h5.0123456789abcdef.tmp", ".other.h5.0123456789abcdef.part"):
        holds(f"out/{name}", "rubbish")(folder)


def only_own_removed(folder, _):
    check(os.path.exists(os.path.join(folder, "out", ".other.h5.0123456789abcdef.part")), "a file of another name was removed")


def delta_folder(folder):
    """deltas/ holds a delta of another run."""
    os.mkdir(os.path.join(folder, "deltas"))
    path = os.path.join(folder, "deltas", "step-000000003.h5")
    shutil.copyfile(os.path.join(folder, "out", "final.h5"), path)
    edit_checkpoint(path, lambda h: h.attrs.__setitem__("format", "trshard-delta"))


PLAN = "-task plan -topology_world_size 2 -topology_compute_device cpu"
BENCH = "-task bench -bench_bytes 1KiB -bench_table_bytes 1MiB -bench_topology"


def is_plan(name):
    """A check: this new file is a complete plan, also if its name is a link."""
    def look(folder, result):
        with open(os.path.join(folder, name), encoding="ascii") as file:
            check(file.read().startswith('{"format": "trshard-plan"'), f"{name} is no plan")
        if os.path.exists(os.path.join(folder, "victim.h5")):
            through_link(folder, result)
    return look


def printed(text):
    def look(_, result):
        check(text in result.text, f"{text!r} was not printed:\n{result.text[-2000:]}")
    return look


NEW = "-output new.h5 -checkpoint_final weights.h5"


def complete(folder, _):
    """The report was lost, but the run's files were not."""
    check(len(losses(os.path.join(folder, "new.h5"))) == 3, "no results")
    check(attribute(os.path.join(folder, "weights.h5"), "step") == 3, "no weights")


LONG = "x" * 253 + ".h5"  # 256 bytes
DEEP = "/".join(["."] * 2100) + "/run.h5"  # a path of 4206 bytes

CASES = [
    Case("output_folder_missing", 73, r"none/run\.h5 cannot be created: No such file or directory; its folder must exist", "-output none/run.h5", after=before_training),
    Case("output_folder_missing_three_ranks", 73, r"none/run\.h5", "-output none/run.h5", ranks=3),
    Case("output_is_a_folder", 73, r"out cannot be created: something that is not a file", "-output out", after=before_training),
    Case("output_names_a_folder", 73, r"out/ cannot be created: it names a folder", "-output out/"),
    Case("output_is_a_fifo", 73, r"pipe\.h5 cannot be created: something that is not a file", "-output pipe.h5", fifo("pipe.h5")),
    Case("output_is_a_device", 73, r"/dev/full cannot be created", "-output /dev/full"),
    Case("output_below_a_file", 73, r"train\.h5/run\.h5 cannot be created: Not a directory", "-output train.h5/run.h5"),
    Case("output_name_too_long", 73, r"cannot be created: File name too long", f"-output out/{'x' * 300}/run.h5"),
    Case("output_name_of_256_bytes", 73, r"cannot be created: File name too long", f"-output {LONG}", after=before_training),
    Case("output_name_of_255_bytes", 0, "", f"-output {LONG[1:]} -checkpoint_final {LONG[2:]}"),
    Case("output_path_too_long", 73, r"cannot be created: File name too long", f"-output {DEEP}", after=before_training),
    Case("final_name_of_256_bytes", 73, r"cannot be created: File name too long", f"-checkpoint_final {LONG}", after=before_training, ranks=3),
    Case("best_name_of_256_bytes", 73, r"cannot be created: File name too long", f"-checkpoint_best {LONG} -data_eval train.h5 -eval_every 1", after=before_training),
    Case("trace_name_of_256_bytes", 73, r"cannot be created: File name too long", f"-trace {LONG}", after=before_training),
    Case("folder_name_of_256_bytes", 73, r"File name too long", f"-checkpoint_dir {LONG}", after=before_training),
    Case("plan_output_name_of_256_bytes", 73, r"-plan_output .* can't be created: File name too long", f"{PLAN} -plan_output {LONG}", ranks=1),
    Case("output_is_a_link", 0, "", "-output link.h5", link, victim_is_kept),
    Case("output_with_left_overs", 0, "", "", left_over, only_own_removed),
    Case("evaluation_output_folder_missing", 73, r"none/run\.h5", "-task eval -data_eval train.h5 -init_from out/final.h5 -output none/run.h5"),
    Case("final_folder_missing", 73, r"none/final\.h5 cannot be created: No such file", "-checkpoint_final none/final.h5", after=before_training),
    Case("final_is_a_folder", 73, r"out cannot be created: something that is not a file", "-checkpoint_final out", after=before_training),
    Case("final_is_a_link", 0, "", "-checkpoint_final link.h5", link, victim_is_kept),
    Case("checkpoint_dir_is_a_file", 73, r"ckpt is not a folder|ckpt.*cannot be", "-checkpoint_dir ckpt -checkpoint_every 1", holds("ckpt", "earlier\n")),
    Case("checkpoint_dir_below_a_file", 73, r"train\.h5/ckpt", "-checkpoint_dir train.h5/ckpt -checkpoint_every 1"),
    Case("delta_dir_is_a_file", 73, r"deltas is not a folder|deltas.*cannot be", "-delta_dir deltas -delta_every 1", holds("deltas", "earlier\n"), ranks=3),
    Case("delta_dir_of_another_run", 73, r"deltas holds 1 delta of another run .*up to step 3\).*-resume, or take another -delta_dir", "-delta_dir deltas -delta_every 1", delta_folder, ranks=3),
    Case("log_view_over_the_data", 64, r'-log_view ":train\.h5" \(command line\): would write over the file of -data_train', "-log_view :train.h5", ranks=3),
    Case("log_view_over_the_weights", 64, r"would write over the file of -(log_view|checkpoint_final)", "-log_view :new.h5:ascii_xml -checkpoint_final new.h5"),
    Case("log_view_unknown", 64, r'-log_view "foo" \(command line\): expected nothing, or :FILE', "-log_view foo"),
    Case("log_view_format", 64, r"-log_view .*: expected nothing, or :FILE", "-log_view :a.txt:bad"),
    Case("log_view_to_a_folder", 73, r"\./out cannot be created: Is a directory \(-log_view\)", "-log_view :out", ranks=3),
    Case("log_view_of_help", 64, r"-log_view .*: expected nothing, or :FILE", "-help -log_view bad", ranks=1),
    Case("log_view_folder_missing", 73, r"none/a\.txt cannot be created: No such file or directory \(-log_view\)", "-log_view :none/a.txt", ranks=3),
    Case("trace_folder_missing", 73, r"none/trace\.json cannot be created: No such file", "-trace none/trace.json", ranks=3, after=before_training),
    Case("trace_is_a_folder", 73, r"out cannot be created: something that is not a file", "-trace out", after=before_training),
    Case("trace_is_a_device", 73, r"/dev/full cannot be created", "-trace /dev/full"),
    Case("trace_negative_first_step", 64, r'-trace_first_step "-1"', "-trace trace.json -trace_first_step -1"),
    Case("trace_no_steps", 64, r'-trace_steps "0" .*in \[1,', "-trace trace.json -trace_steps 0"),
    Case("trace_steps_text", 64, r'-trace_steps "ten"', "-trace trace.json -trace_steps ten"),
    Case("trace_far_away", 0, "", "-trace trace.json -trace_first_step 9223372036854775807 -trace_steps 1000000000", after=not_reached),
    Case("plan_output_folder_missing", 73, r"-plan_output .*none/plan\.json can't be created", "-plan_output none/plan.json"),
    Case("plan_report_folder_missing", 73, r"-plan_report .*none/report\.txt can't be created", "-plan_report none/report.txt"),
    Case("plan_search_space_folder_missing", 73, r"-plan_search_space .*none/space\.json can't be created", "-plan_search_space none/space.json", ranks=3),
    Case("plan_output_is_a_fifo", 73, r"-plan_output .*pipe can't be created: something that is not a file", f"{PLAN} -plan_output pipe", fifo("pipe"), ranks=1),
    Case("plan_output_is_a_fifo_three_ranks", 73, r"-plan_output .*pipe can't be created", "-plan_output pipe", fifo("pipe"), before_training, ranks=3),
    Case("plan_report_is_a_fifo", 73, r"-plan_report .*pipe can't be created", f"{PLAN} -plan_report pipe", fifo("pipe"), ranks=1),
    Case("plan_search_space_is_a_fifo", 73, r"-plan_search_space .*pipe can't be created", f"{PLAN} -plan_search_space pipe", fifo("pipe"), ranks=1),
    Case("plan_report_is_a_device", 73, r"-plan_report /dev/null can't be created", f"{PLAN} -plan_report /dev/null", ranks=1),
    Case("plan_output_is_a_link", 0, "", f"{PLAN} -plan_output link.h5", link, is_plan("link.h5"), ranks=1),
    Case("plan_output_of_a_training_is_a_link", 0, "", "-plan_output link.h5", link, is_plan("link.h5")),
    Case("plan_output_on_stdout", 0, "", f"{PLAN} -plan_output /dev/stdout", after=printed('"trshard-plan"'), ranks=1),
    Case("plan_report_on_stdout", 0, "", "-plan_report stdout", after=printed("Planner statistics")),
    Case("bench_topology_folder_missing", 73, r"-bench_topology .*none/t\.opts can't be created", f"{BENCH} none/t.opts", ranks=3),
    Case("bench_topology_is_a_fifo", 73, r"-bench_topology .*pipe can't be created", f"{BENCH} pipe", fifo("pipe")),
    Case("bench_topology_is_a_link", 0, "", f"{BENCH} link.h5", link, through_link),
    Case("quant_checkpoint_name_of_256_bytes", 73, r"cannot be created: File name too long",
         f"-task predict -data_eval train.h5 -init_from out/final.h5 -quant_checkpoint {LONG}"),
    # Under mpirun, mpirun holds the output file. A rank of a batch system, or without mpirun,
    # writes to the file itself.
    Case("stdout_on_a_full_disk", 74, r"standard output cannot be written", NEW, after=complete, ranks=1, prelude="exec >/dev/full; "),
    Case("stdout_on_a_full_disk_two_ranks", 74, r"standard output cannot be written", NEW, after=complete, prelude="exec >/dev/full; "),
    Case("stdout_on_a_full_disk_three_ranks", 74, r"standard output cannot be written", NEW, after=complete, ranks=3,
         prelude="[ $OMPI_COMM_WORLD_RANK != 0 ] || exec >/dev/full; "),
    Case("help_on_a_full_disk", 74, r"standard output cannot be written", "-help", ranks=1, prelude="exec >/dev/full; "),
    Case("version_on_a_full_disk", 74, r"standard output cannot be written", "-version", prelude="exec >/dev/full; "),
    Case("plan_on_a_full_disk", 74, r"standard output cannot be written", f"{PLAN} -plan_report stdout", ranks=1, prelude="exec >/dev/full; "),
    Case("eval_on_a_full_disk", 74, r"standard output cannot be written", "-task eval -data_eval train.h5 -init_from out/final.h5", prelude="exec >/dev/full; ",
         without=("-output",)),
    Case("predict_on_a_full_disk", 74, r"standard output cannot be written", "-task predict -data_eval train.h5 -init_from out/final.h5", prelude="exec >/dev/full; ",
         without=("-output",)),
    Case("bench_on_a_full_disk", 74, r"standard output cannot be written", f"{BENCH} t.opts", prelude="exec >/dev/full; "),
    Case("log_view_on_a_full_disk", 74, r"standard output cannot be written", "-log_view", prelude="exec >/dev/full; ", without=("-output", "-checkpoint_final")),
    Case("stdout_closed", 0, "", ranks=1, prelude="exec >&-; "),
]
