# SPDX-License-Identifier: BSD-3-Clause
"""A training's metrics, early stopping and best checkpoint."""
import os
import re

import h5py
import numpy as np

from badinput import Case
from cases_checkpoints import bad, folder_with
from prepare import attribute_of, edit_checkpoint
from trsrun import check, write_dataset

EVAL = "-data_eval eval.h5 -eval_every 1"
EARLY = f"{EVAL} -early_stopping_metric auc"
RESUME = "-checkpoint_dir ckpt -resume -steps 6"


def evaluation(folder):
    write_dataset(os.path.join(folder, "eval.h5"), 10, seed=3)


def attribute(name, change):
    """A prepare function: ckpt/ holds the good checkpoint, with this attribute changed:
    change(numbers) -> numbers, None removes it."""
    def damage(path):
        with h5py.File(path, "r+") as h:
            numbers = change(np.array(h.attrs[name]))
            del h.attrs[name]
            # like a faulty program's output, not like a damaged disk
            if name in h["checksums"].attrs:
                del h["checksums"].attrs[name]
            if numbers is not None:
                h.attrs[name] = numbers

    def prepare(folder):
        evaluation(folder)
        folder_with(damage, first=3)(folder)
    return prepare


def unlabelled(folder):
    path = write_dataset(os.path.join(folder, "train.h5"), labels=["click", "buy"])
    with h5py.File(path, "r+") as h:
        h["labels"][:, 1] = np.nan


def unused_row(folder):
    """A row of table user that no sample of train.h5 has, so that its content does not affect a
    loss."""
    with h5py.File(os.path.join(folder, "train.h5")) as h:
        sparse = h["sparse"]
        feature = list(sparse.attrs["features"]).index("user")
        of_id = np.repeat(np.tile(np.arange(len(sparse.attrs["features"])), len(sparse["lengths"])), sparse["lengths"][()].ravel())
        used = sparse["values"][()][of_id == feature]
        return max(set(range(int(sparse.attrs["num_embeddings"][feature]))) - set(used.tolist()))


def poisoned(name, value):
    """A prepare function: bad.h5 is the good checkpoint, with a row of table user that is not
    finite."""
    def change(h):
        values = h[name][()]
        values[unused_row(os.path.dirname(h.filename))] = value
        h[name][...] = values
    return bad(change)


def of_other(name):
    """A prepare function: ckpt/ holds the good checkpoint, whose state claims to be of this
    optimizer."""
    change = attribute_of("embedding/user/momentum1", "optimizer", name)
    return folder_with(lambda path: edit_checkpoint(path, change, sums=True), first=3)


POISON = "-steps 1 -init_from bad.h5 -embedding_learning_rate 0 -dense_learning_rate 0"
CASES = [
    Case("early_stopping_without_labels", 65, r'no label of task "buy", whose metric -early_stopping_metric',
         "-tasks click,buy -data_eval train.h5 -eval_every 1 -early_stopping_metric auc -early_stopping_task buy", unlabelled),
    Case("evaluation_without_labels_of_a_task", 0, "", "-tasks click,buy -data_eval train.h5", unlabelled,
         lambda folder, result: check(re.search(r"buy: no sample has a label\neval after step 3: loss no number, ", result.text), result.text[-2000:])),
    Case("weights_not_finite_are_not_saved", 78, r"final\.h5 is not written: row \d+ of /embedding/user/weight is not finite", f"{POISON} -embedding_optimizer sgd", poisoned("embedding/user/weight", np.nan)),
    Case("states_not_finite_are_not_saved", 78, r"final\.h5 is not written: row \d+ of /embedding/user/momentum1 is not finite", POISON, poisoned("embedding/user/momentum1", np.inf)),
    Case("states_not_finite_three_ranks", 78, r"/embedding/user/(momentum1|weight) is not finite", POISON, poisoned("embedding/user/momentum1", -np.inf), ranks=3),
    Case("half_not_finite_is_not_saved", 78, r"/embedding/user/weight is not finite", f"{POISON} -embedding_optimizer sgd -tables_data_type bf16", poisoned("embedding/user/weight", np.nan)),
    Case("resume_with_another_optimizer", 64, r"-resume .*momentum1 is of optimizer adam, now it is rowwise_adagrad", RESUME, of_other("adam")),
    Case("resume_with_an_unknown_optimizer", 64, r"-resume .*is of optimizer a\\x1bb", RESUME, of_other("a\x1bb")),
    Case("resume_without_the_optimizers_name", 0, "", RESUME, of_other(None)),
    Case("resume_with_a_number_for_an_optimizer", 65, r"attribute optimizer .*not a string", RESUME, of_other(3)),
    Case("metrics_every_negative", 64, r'-metrics_every "-1" .*in \[0, ', "-metrics_every -1"),
    Case("metrics_every_fraction", 64, r'-metrics_every "0\.5" .*integer', "-metrics_every 0.5"),
    Case("metrics_every_nan", 64, r'-metrics_every "nan" .*integer', "-metrics_every nan"),
    Case("metrics_window_zero", 64, r'-metrics_window_samples "0" .*in \[1, ', "-metrics_window_samples 0"),
    Case("tables_larger_than_free_memory", 71, r"the plan gives rank \d on .*TiB of tables, but .* of memory are free there: use more hosts.*-topology_ddr_cap",
         "-tables_num_embeddings 1000000000000 -topology_ddr_cap 1000TiB"),
    Case("metrics_window_larger_than_memory", 71, r"out of memory", "-metrics_window_samples 4000000000000000"),
    Case("metrics_never", 0, "", "-metrics_every 0"),
    Case("metrics_window_smaller_than_batch", 0, "", "-metrics_every 1 -metrics_window_samples 1"),
    Case("metrics_misspelt", 64, r"-metric_every .*closest known one is -metrics_every", "-metric_every 3"),
    Case("early_stopping_unknown_metric", 64, r'-early_stopping_metric "f1" .*loss, ne, auc', f"{EVAL} -early_stopping_metric f1", evaluation),
    Case("early_stopping_without_eval_every", 64, r"-early_stopping_metric .*needs -eval_every", "-data_eval eval.h5 -early_stopping_metric auc", evaluation),
    Case("early_stopping_without_data_eval", 64, r"-eval_every .*needs -data_eval", "-eval_every 1 -early_stopping_metric auc"),
    Case("early_stopping_patience_zero", 64, r'-early_stopping_patience "0" .*in \[1, ', f"{EARLY} -early_stopping_patience 0", evaluation),
    Case("early_stopping_patience_alone", 64, r"-early_stopping_patience .*needs -early_stopping_metric", f"{EVAL} -early_stopping_patience 2", evaluation),
    Case("early_stopping_min_delta_alone", 64, r"-early_stopping_min_delta .*needs -early_stopping_metric", f"{EVAL} -early_stopping_min_delta 0.1", evaluation),
    Case("early_stopping_min_delta_negative", 64, r'-early_stopping_min_delta "-1" .*in \[0, ', f"{EARLY} -early_stopping_min_delta -1", evaluation),
    Case("early_stopping_min_delta_infinite", 64, r'-early_stopping_min_delta "inf" .*finite', f"{EARLY} -early_stopping_min_delta inf", evaluation),
    Case("early_stopping_ends_with_success", 0, "", f"{EARLY} -early_stopping_patience 1 -early_stopping_min_delta 2", evaluation,
         after=lambda folder, result: check("stopped early after step 2 of 3" in result.text, f"it was not stopped:\n{result.text[-900:]}")),
    Case("checkpoint_best_without_data_eval", 64, r"-checkpoint_best .*needs -data_eval", "-checkpoint_best best.h5"),
    Case("checkpoint_best_in_no_folder", 73, r"nowhere", f"{EVAL} -checkpoint_best nowhere/best.h5", evaluation),
    Case("checkpoint_best_is_a_folder", 73, r"out", f"{EVAL} -checkpoint_best out", evaluation),
    Case("metrics_of_a_checkpoint_too_few", 65, r"step-000000003\.h5.*metrics.*2 sums of metrics, expected", f"{EARLY} {RESUME}", attribute("metrics", lambda n: n[:2])),
    Case("metrics_of_a_checkpoint_nan", 65, r"sum 5 of the metrics is nan", f"{EARLY} {RESUME}", attribute("metrics", lambda n: np.where(np.arange(len(n)) == 5, np.nan, n))),
    Case("metrics_of_a_checkpoint_negative", 65, r"sum 0 of the metrics is -1", f"{EARLY} {RESUME}", attribute("metrics", lambda n: np.where(np.arange(len(n)) == 0, -1, n))),
    Case("metrics_of_a_checkpoint_integers", 65, r"attribute metrics .*not a list of floating-point", "-init_from ckpt/step-000000003.h5", attribute("metrics", lambda n: n.astype(np.int64))),
    Case("metrics_of_a_checkpoint_missing", 0, "", f"{EARLY} {RESUME}", attribute("metrics", lambda n: None)),
    Case("early_stopping_of_a_checkpoint_too_long", 65, r"early_stopping has 6 numbers, expected 5", f"{EARLY} {RESUME}", attribute("early_stopping", lambda n: np.append(n, 0))),
    Case("early_stopping_of_a_checkpoint_infinite", 65, r"early_stopping has the number inf", f"{EARLY} {RESUME}", attribute("early_stopping", lambda n: n + [0, 0, np.inf, 0, 0])),
    Case("early_stopping_of_a_checkpoint_unknown_metric", 65, r"early_stopping names metric 99999", f"{EARLY} {RESUME}", attribute("early_stopping", lambda n: n * [0, 1, 1, 1, 1] + [99999, 0, 0, 0, 0])),
    Case("table_optimizer_unknown", 64, r'-table_user_optimizer "adamw" .*none, sgd, adagrad', "-table_user_optimizer adamw"),
    Case("table_optimizer_shampoo", 64, r"-table_user_optimizer .*shampoo is not supported", "-table_user_optimizer shampoo"),
    Case("table_optimizer_of_no_table", 64, r'-table_usr_optimizer .*no table "usr"; the closest name is "user"', "-table_usr_optimizer adam"),
    Case("table_optimizer_misspelt", 64, r"closest known one is -table_user_optimizer", "-table_user_optimiser adam"),
    Case("table_learning_rate_negative", 64, r'-table_user_learning_rate "-1" .*in \[0, ', "-table_user_learning_rate -1"),
    Case("table_learning_rate_infinite", 64, r'-tables_learning_rate "inf" .*finite', "-tables_learning_rate inf"),
    Case("table_beta_of_one", 64, r'-table_user_beta2 "1" .*in \[0, 1\)', "-table_user_beta2 1"),
    Case("table_max_gradient_zero", 64, r'-table_user_max_gradient "0" .*in \(0, ', "-table_user_max_gradient 0"),
    Case("table_weight_decay_with_sgd", 64, r"-table_user_weight_decay .*sgd of table user takes no weight decay", "-table_user_optimizer sgd -table_user_weight_decay 0.1"),
    Case("table_weight_decay_of_all_with_sgd", 64, r"-embedding_weight_decay .*adagrad of table user takes no weight decay", "-table_user_optimizer adagrad -embedding_weight_decay 0.1"),
    Case("table_weight_decay_mode_of_fbgemm", 64, r"-table_user_weight_decay_mode .*not supported", "-table_user_weight_decay_mode counter"),
    Case("table_optimizers_mixed", 0, "", "-tables_optimizer adam -table_user_optimizer lion -embedding_optimizer sgd"),
    Case("bench_of_nothing", 64, r"give -bench_topology FILE.*-bench_qcomm", "-task bench"),
    Case("bench_qcomm_without_data", 64, r"-data_train is missing", "-task bench -bench_qcomm", without=("-data_train",)),
    Case("bench_qcomm_no_steps", 64, r'-bench_steps "0" .*in \[1, ', "-task bench -bench_qcomm -bench_steps 0"),
    Case("bench_qcomm_loss_scale_of_int8", 64, r"-qcomm_forward_loss_scale", "-task bench -bench_qcomm -qcomm_forward_precision int8 -qcomm_forward_loss_scale 8"),
    Case("early_stopping_of_another_metric", 0, "", f"{EVAL} -early_stopping_metric ne {RESUME}", attribute("early_stopping", lambda n: n)),
    Case("small_stack", 71, r"the stack is limited to 256 KiB \(ulimit -s\), at least 512 KiB", prelude="ulimit -s 256; "),
    Case("small_stack_three_ranks", 71, r"the stack is limited to 256 KiB", prelude="ulimit -s 256; ", ranks=3),
    Case("stack_just_enough", 0, "", prelude="ulimit -s 512; "),
    Case("little_address_space", 71, r"OpenBLAS needs \d+ MiB more of address space.*ulimit -v|cannot start the .* thread", prelude="ulimit -v 400000; ",
         environment={"TRSHARD_GEMM": "openblas"}),
]
