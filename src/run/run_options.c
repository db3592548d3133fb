/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_options.h"

#include "api/machine.h"
#include "bench/task_bench.h"
#include "comm/qcomm.h"
#include "data/reader.h"
#include "device/cpu_bind.h"
#include "model/dlrm.h"
#include "model/two_tower.h"
#include "optim/schedule.h"
#include "optim/sparse_optimizer.h"
#include "plan/planner.h"
#include "quant/quantised_tables.h"
#include "report/kernels.h"
#include "report/recall.h"
#include "report/trace.h"
#include "run/beside.h"
#include "run/deltas.h"
#include "run/early_stopping.h"
#include "run/increments.h"
#include "run/neighbours.h"
#include "run/predict_embeddings.h"
#include "session/follow.h"
#include "session/start_state.h"
#include "shard/sharded_ebc.h"
#include "train/dense_allreduce.h"
#include "train/metrics/running_metrics.h"
#include "train/pair_loss.h"
#include "train/pipeline.h"

static const TrsOptionSpec run_specs[] = {
    {"-task", TRS_OPTION_ENUM, "train", NULL, TRS_CHOICES(TRS_TASKS), NULL,
     "what to do. train: train a model. plan: plan how tables are sharded, as a dry run. eval: evaluate a "
     "model. predict: inference with quantised tables. bench: measure the machine, or what quantised "
     "exchanges cost"},
    {"-output", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "HDF5 file for the run's results (default: none). A resumed training continues its own file"},
    {"-output_every", TRS_OPTION_REAL, "300", "[0,]", NULL, "s",
     "a training writes -output at least this often, and at each checkpoint; 0: only at checkpoints and at "
     "the end. The first write comes after 5 s, and each interval is twice the one before. Writing takes "
     "at most 1 % of the time, so a very long history is written less often"},
    {"-existing_outputs", TRS_OPTION_ENUM, "backup", NULL, "backup,refuse,replace", NULL,
     "what to do if another file exists at the path of an output. At -output, -trace, -checkpoint_final, "
     "-checkpoint_best and -quant_checkpoint, this is a file of another run, or of no run. At "
     "-plan_output, -plan_search_space, -plan_report and -bench_topology, it is a file with another text. "
     "A resumed run always replaces its own files. backup: keep it as FILE.~1~, FILE.~2~ ... when the new "
     "file is put in place. refuse: do not start (exit status 73). replace: overwrite it"},
    {"-existing_outputs_keep", TRS_OPTION_INT, "10", "[0,100000]", NULL, "files",
     "number of backups FILE.~n~ to keep for each output. When a new backup is made, the oldest backups "
     "that this program wrote are removed; files of other programs stay. 0: all stay"},
    {"-report_interval", TRS_OPTION_REAL, NULL, "[0,]", NULL, "s",
     "time between progress lines; 0: one each step (default: 2 on a terminal, 60 in a file or a pipe)"},
    {"-watchdog_seconds", TRS_OPTION_REAL, "300", "[0,]", NULL, "s",
     "end the job with exit status 76 if a rank stays in one step longer than this; 0: never"},
};

static const TrsOptionSpec checkpoint_specs[] = {
    {"-init_from", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "checkpoint from which to take weights and optimizer states. -task eval and -task predict also take the "
     "options of its model from it, as if an option file gave them before all others"},
    {"-resume", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "continue from the newest valid checkpoint in -checkpoint_dir, if there is one; the model's options "
     "come from there, as for -task eval"},
    {"-checkpoint_dir", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "folder for checkpoints: one after the last step, and those of -checkpoint_every. A requested stop "
     "(SIGUSR1, SIGTERM, SIGINT or SIGHUP) writes one there and ends with exit status 75; a second request, "
     "two seconds later or more, ends at once with 130. Under mpirun: kill -USR1 <pid of mpirun>; under "
     "srun: scancel --signal=USR1 "
     "<job id>. Without -init_from, -task predict takes the newest one"},
    {"-checkpoint_every", TRS_OPTION_INT, "0", "[0,]", NULL, "steps",
     "write a checkpoint to -checkpoint_dir this often; 0: never"},
    {"-checkpoint_keep", TRS_OPTION_INT, "2", "[1,]", NULL, "files",
     "number of checkpoints to keep in -checkpoint_dir; one that -task predict reads stays until later"},
    {"-checkpoint_set_aside", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "a run without -resume moves the checkpoints of earlier runs into a new folder of this name in "
     "-checkpoint_dir (default: refuse a folder with such checkpoints)"},
    {"-checkpoint_lock_seconds", TRS_OPTION_REAL, "60", "[0,]", NULL, "s",
     "with -resume, how long to wait until another job leaves -checkpoint_dir, where only one job of a run "
     "may write at a time. The locks are fcntl's: they end with their process, and they reach other hosts if "
     "the file system supports that"},
    {"-checkpoint_final", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "file for the checkpoint after the last step"},
    {"-checkpoint_best", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "file for a checkpoint of the best evaluation so far, by -early_stopping_metric, or by the loss without "
     "it. Until an evaluation has a number for it, the last evaluation counts as the best"},
};

static const TrsOptionGroup run_group = TRS_OPTION_GROUP("Run", run_specs);
static const TrsOptionGroup checkpoint_group = TRS_OPTION_GROUP("Checkpoints", checkpoint_specs);

const TrsOptionGroup *const trs_option_groups[] = {&run_group,
                                                   &trs_machine_options,
                                                   &trs_reader_options,
                                                   &trs_follow_options,
                                                   &trs_tables_options,
                                                   &trs_table_options,
                                                   &trs_shard_options,
                                                   &trs_model_options,
                                                   &trs_two_tower_options,
                                                   &trs_pair_loss_options,
                                                   &trs_tasks_options,
                                                   &trs_task_options,
                                                   &trs_heads_options,
                                                   &trs_sparse_optimizer_options,
                                                   &trs_dense_optimizer_options,
                                                   &trs_schedule_options,
                                                   &trs_model_parallel_options,
                                                   &trs_pipeline_options,
                                                   &trs_metrics_options,
                                                   &trs_trace_options,
                                                   &trs_kernel_report_options,
                                                   &trs_early_stopping_options,
                                                   &checkpoint_group,
                                                   &trs_increment_options,
                                                   &trs_beside_options,
                                                   &trs_delta_options,
                                                   &trs_start_options,
                                                   &trs_quant_options,
                                                   &trs_predict_options,
                                                   &trs_neighbours_options,
                                                   &trs_recall_options,
                                                   &trs_cpu_options,
                                                   &trs_comm_options,
                                                   &trs_qcomm_options,
                                                   &trs_dense_allreduce_options,
                                                   &trs_planner_options,
                                                   &trs_topology_options,
                                                   &trs_bench_options};
const int trs_n_option_groups = (int)(sizeof(trs_option_groups) / sizeof(trs_option_groups[0]));
