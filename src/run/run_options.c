/* SPDX-License-Identifier: BSD-3-Clause */
#include "run/run_options.h"

#include "comm/qcomm.h"
#include "data/reader.h"
#include "device/cpu_bind.h"
#include "model/dlrm.h"
#include "optim/schedule.h"
#include "optim/sparse_optimizer.h"
#include "plan/planner.h"
#include "quant/quantised_tables.h"
#include "run/early_stopping.h"
#include "run/start_state.h"
#include "run/task_bench.h"
#include "run/trace.h"
#include "shard/sharded_ebc.h"
#include "train/dense_allreduce.h"
#include "train/pipeline.h"
#include "train/running_metrics.h"

static const TrsOptionSpec run_specs[] = {
    {"-task", TRS_OPTION_ENUM, "train", NULL, "train,plan,eval,predict,bench", NULL,
     "what to do; predict: inference with quantised tables"},
    {"-device", TRS_OPTION_ENUM, "auto", NULL, "auto,cpu,cuda", NULL,
     "where tables and layers live; auto: cuda where there is one"},
    {"-cpu_isa", TRS_OPTION_ENUM, "auto", NULL, "auto,portable,avx2,avx512", NULL,
     "instructions of the CPU's kernels and matrix products; auto: the best that the processor has and "
     "TRSHARD_ISA in the environment allows. Equal bits need equal instructions"},
    {"-gpu_share", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "several ranks may use one GPU (with -comm_backend mpi; NCCL wants one for each rank)"},
    {"-output", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "HDF5 file for the run's results; none: not kept. A resumed training goes on with its own file"},
    {"-output_every", TRS_OPTION_REAL, "300", "[0,]", NULL, "s",
     "a training writes -output at least this often, and at each checkpoint; 0: only then and at the end. "
     "Writing "
     "takes at most 1 % of the time, so a very long history is written less often"},
    {"-existing_outputs", TRS_OPTION_ENUM, "backup", NULL, "backup,refuse,replace", NULL,
     "what becomes of a file of another run, or of none, at -output, -checkpoint_final, -checkpoint_best, "
     "-quant_checkpoint or -trace: it is kept as FILE.~1~, FILE.~2~ ... when the new one is put in place; "
     "the run "
     "does not start (73); or it is lost. A resumed run's own files are replaced"},
    {"-report_interval", TRS_OPTION_REAL, "2", "[0,]", NULL, "s",
     "time between progress lines; 0: one each step"},
    {"-watchdog_seconds", TRS_OPTION_REAL, "300", "[0,]", NULL, "s",
     "a rank that stays in one step longer ends the job with 76; 0: never"},
};

static const TrsOptionSpec checkpoint_specs[] = {
    {"-init_from", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "checkpoint to take weights and optimizer states from"},
    {"-resume", TRS_OPTION_BOOL, "false", NULL, NULL, NULL,
     "go on from the newest valid checkpoint in -checkpoint_dir, if there is one"},
    {"-checkpoint_dir", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "folder for checkpoints; one is written there before a requested stop (SIGUSR1, SIGTERM, SIGINT or "
     "SIGHUP: ends with 75; the same again: at once, 130). Under mpirun: kill -USR1 <pid of mpirun>; under "
     "srun: scancel --signal=USR1 <job id>. -task predict takes the newest without -init_from"},
    {"-checkpoint_every", TRS_OPTION_INT, "0", "[0,]", NULL, "steps",
     "write a checkpoint to -checkpoint_dir this often; 0: never"},
    {"-checkpoint_keep", TRS_OPTION_INT, "2", "[1,]", NULL, "files", "checkpoints kept in -checkpoint_dir"},
    {"-checkpoint_set_aside", TRS_OPTION_STRING, NULL, NULL, NULL, NULL,
     "a run that starts without -resume moves the checkpoints of earlier runs into the new folder of this "
     "name in "
     "-checkpoint_dir; without it their folder is refused"},
    {"-checkpoint_lock_seconds", TRS_OPTION_REAL, "60", "[0,]", NULL, "s",
     "with -resume, how long to wait for another job to leave -checkpoint_dir: one of a run at a time writes "
     "there. Locks are fcntl's: they end with their process, and reach other hosts where the file system's "
     "do"},
    {"-checkpoint_final", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "file for the checkpoint after the last step"},
    {"-checkpoint_best", TRS_OPTION_FILE, NULL, NULL, NULL, NULL,
     "file for a checkpoint at the best evaluation so far: of -early_stopping_metric, without it the loss"},
};

static const TrsOptionGroup run_group = TRS_OPTION_GROUP("Run", run_specs);
static const TrsOptionGroup checkpoint_group = TRS_OPTION_GROUP("Checkpoints", checkpoint_specs);

const TrsOptionGroup *const trs_option_groups[] = {&run_group,
                                                   &trs_reader_options,
                                                   &trs_tables_options,
                                                   &trs_table_options,
                                                   &trs_shard_options,
                                                   &trs_model_options,
                                                   &trs_sparse_optimizer_options,
                                                   &trs_dense_optimizer_options,
                                                   &trs_schedule_options,
                                                   &trs_model_parallel_options,
                                                   &trs_pipeline_options,
                                                   &trs_metrics_options,
                                                   &trs_trace_options,
                                                   &trs_early_stopping_options,
                                                   &checkpoint_group,
                                                   &trs_start_options,
                                                   &trs_quant_options,
                                                   &trs_cpu_options,
                                                   &trs_comm_options,
                                                   &trs_qcomm_options,
                                                   &trs_dense_allreduce_options,
                                                   &trs_planner_options,
                                                   &trs_topology_options,
                                                   &trs_bench_options};
const int trs_n_option_groups = (int)(sizeof(trs_option_groups) / sizeof(trs_option_groups[0]));
