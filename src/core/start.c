/* SPDX-License-Identifier: BSD-3-Clause */
#define _GNU_SOURCE /* for pthread_setattr_default_np. NOLINT(bugprone-reserved-identifier) */
#include "core/start.h"

#include "core/events.h"
#include "core/options/option_petsc.h"
#include "core/print.h"
#include "core/random/random.h"

#include <dlfcn.h>
#include <errno.h>
#include <fcntl.h>
#include <link.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <unistd.h>

/* Environment variables through which options or code could enter PETSc and HDF5 unnoticed. */
static const char *const closed_variables[] = {
    "PETSC_OPTIONS", "PETSC_OPTIONS_YAML", "HDF5_PLUGIN_PATH", "HDF5_PLUGIN_PRELOAD",
    "HDF5_DRIVER",   "HDF5_EXT_PREFIX",    "HDF5_VDS_PREFIX"};

static char fixed_arguments[][24] = {"trshard", "-skip_petscrc", "-no_signal_handler"};
enum { TRS_N_FIXED = sizeof(fixed_arguments) / sizeof(fixed_arguments[0]), TRS_N_LIBRARY = 4 };

/* true if standard output is a file, whose disk may be full at the end */
static PetscBool stdout_is_file;

/*
  Stack size of a thread, and smallest allowed stack size of the main thread. The deepest calls use
  some 300 KiB.
*/
enum { TRS_STACK_BYTES = 4 << 20, TRS_LEAST_STACK_BYTES = 512 << 10 };

/*
  Copy the options of the command line that PETSc needs when it starts. petsc_argv has space for
  argc + TRS_N_FIXED + 1 words.
*/
static int early_arguments(int argc, char **argv, char **petsc_argv)
{
  int n = 0;

  for (int i = 0; i < TRS_N_FIXED; i++) petsc_argv[n++] = fixed_arguments[i];
  for (int i = 1; i < argc; i++) {
    PetscBool has_value = (PetscBool)(i + 1 < argc && !TrsIsOptionWord(argv[i + 1]));

    if (strcasecmp(argv[i], "-help") == 0 && has_value && strcasecmp(argv[i + 1], "all") == 0) {
      petsc_argv[n++] = argv[i];
    } else if (TrsIsOptionWord(argv[i]) && (TrsOptionPetscKindOf(argv[i]) == TRS_OPTION_PETSC_EARLY ||
                                            TrsOptionPetscKindOf(argv[i]) == TRS_OPTION_PETSC)) {
      const char *file;
      int length;

      /* PETSc would end the process here because of an unknown value; the options' check reports
         it with the option's name */
      if (has_value && strcasecmp(argv[i], "-log_view") == 0 &&
          !TrsOptionLogView(argv[i + 1], &file, &length))
        continue;
      petsc_argv[n++] = argv[i];
      if (has_value) petsc_argv[n++] = argv[++i];
    }
  }
  petsc_argv[n] = NULL;
  return n;
}

PetscBool TrsStartOnOneHost(void)
{
  const char *here = getenv("OMPI_COMM_WORLD_LOCAL_SIZE"), *all = getenv("OMPI_COMM_WORLD_SIZE"),
             *hosts = getenv("SLURM_STEP_NUM_NODES");

  if (here && all) return (PetscBool)(strcmp(here, all) == 0);
  if (getenv("PMIX_RANK") || getenv("PMI_RANK")) return (PetscBool)(hosts && strcmp(hosts, "1") == 0);
  return PETSC_TRUE; /* no launcher has started this process, so it has no other ranks */
}

/*
  Do not let Open MPI open the libraries of all fabrics. Inside a host it uses ob1 and shared
  memory. Before that, it would open all libraries, one of which (PSM2) sleeps for a fifth of a
  second. A choice that is in the environment or in mpirun's --mca stays in effect. A choice in
  mca-params.conf does not: only MPI can read this file, and the environment has priority.

  Open MPI 5.0 also asks the kernel for the route between ranks. Inside a host this is the loopback,
  so each rank would print that it finds no reachable pairing of interfaces. With "weighted", Open
  MPI only compares addresses.
*/
static void spare_fabrics(void)
{
  static const char *const choices[] = {"OMPI_MCA_pml", "OMPI_MCA_mtl", "OMPI_MCA_btl"};

  if (!TrsStartOnOneHost()) return;
  setenv("OMPI_MCA_reachable", "weighted", 0);
  for (size_t i = 0; i < sizeof(choices) / sizeof(choices[0]); i++)
    if (getenv(choices[i])) return;
  setenv("OMPI_MCA_pml", "ob1", 0);
}

/*
  If srun starts this process, keep PMIx's data store in the process instead of shared memory. With
  the store in shared memory (ds21 of PMIx 4.2, Slurm 22.05), some ranks leave MPI_Init() while
  others still wait in its first fence. If a message arrives in the fence, the waiting ranks end
  with SIGSEGV. On two busy nodes with two ranks, this happened in 18 of 809 starts; with the store
  in the process, in none of 855. The cost is a copy of the ranks' addresses in each process.
*/
static void keep_pmix_store(void)
{
  if (getenv("SLURM_STEP_ID") && getenv("PMIX_RANK")) setenv("PMIX_MCA_gds", "hash", 0);
}

/*
  Let Open MPI's TCP send blocks of up to TRS_EAGER_BYTES at once. Larger messages begin with a
  question, and the receiver's answer waits behind all bytes that the receiver itself is sending on
  the connection. So two ranks that exchange blocks send them one after the other instead of at the
  same time. Between hosts with 0.1 Gbit/s, a step of table_wise tables took 1.4 times as long on 2
  and 4 hosts.

  Memory: by its sources, Open MPI 4 has one list of buffers of this size for each process, not for
  each connection. The list begins with 8 buffers and grows by 32, without a limit. A buffer is in
  use for each connection whose message has arrived in part. So P ranks that send at the same time
  may need P MiB, of which only the pages that messages filled are resident. Messages without a
  posted receive need up to as much again. This memory was not measured.
*/
static void send_at_once(void)
{
  char text[32];

  /* the header of a message counts, too */
  (void)snprintf(text, sizeof(text), "%d", TRS_EAGER_BYTES + 1024);
  setenv("OMPI_MCA_btl_tcp_eager_limit", text, 0);
}

volatile int trs_stop_requested;
_Thread_local int trs_signals_have_stack;

/*
  Open /dev/null for each standard stream that is closed. If not, the first files that the program
  opens would get the descriptors of these streams, and progress lines would be written into a
  checkpoint.

  Also find out whether standard output is a file, or a device that is not a terminal. This is
  stored, because isatty() fails after the terminal has closed.
*/
static void look_at_streams(void)
{
  struct stat status;

  for (int fd = 0; fd <= STDERR_FILENO; fd++)
    if (fcntl(fd, F_GETFD) < 0 && errno == EBADF && open("/dev/null", O_RDWR) < 0) return;
  if (fstat(STDOUT_FILENO, &status) != 0) return;
  stdout_is_file = (PetscBool)(S_ISREG(status.st_mode) ||
                               (S_ISCHR(status.st_mode) && !isatty(STDOUT_FILENO)));
}

/*
  Set the stack size of new threads. Its default is the limit of the main thread's stack, and with a
  small limit (ulimit -s 256) threads would end with SIGSEGV. The stacks of threads are ordinary
  memory.
*/
static void give_threads_stacks(void)
{
  pthread_attr_t attributes;
  size_t bytes = 0;

  if (pthread_getattr_default_np(&attributes) != 0) return;
  if (pthread_attr_getstacksize(&attributes, &bytes) == 0 && bytes < TRS_STACK_BYTES &&
      pthread_attr_setstacksize(&attributes, TRS_STACK_BYTES) == 0)
    (void)pthread_setattr_default_np(&attributes);
  (void)pthread_attr_destroy(&attributes);
}

static PetscBool is_program;

PetscBool TrsStartIsProgram(void)
{
  return is_program;
}

PetscErrorCode TrsStart(int argc, char **argv)
{
  int provided, n;
  char **petsc_argv = malloc(((size_t)argc + TRS_N_FIXED + 1) * sizeof(*petsc_argv));
  char **passed = petsc_argv;
  PetscErrorCode ierr;

  if (!petsc_argv) return PETSC_ERR_MEM;
  look_at_streams();
  give_threads_stacks();
  is_program = PETSC_TRUE;
  TrsPrintInstall();
  for (size_t i = 0; i < sizeof(closed_variables) / sizeof(closed_variables[0]); i++)
    unsetenv(closed_variables[i]);
  TrsRandomSetIsa(getenv("TRSHARD_ISA"));
  spare_fabrics();
  keep_pmix_store();
  send_at_once();
  MPI_Init_thread(&argc, &argv, MPI_THREAD_FUNNELED, &provided);
  n = early_arguments(argc, argv, petsc_argv);
  ierr = PetscInitialize(&n, &passed, NULL, NULL);
  free(petsc_argv);
  if (ierr == PETSC_SUCCESS) ierr = TrsErrorInstall();
  if (ierr == PETSC_SUCCESS) ierr = TrsEventsRegister();
  return ierr;
}

PetscErrorCode TrsStartLibrary(void)
{
  /* a debug build of PETSc would refuse to free memory that a predictor allocated before PETSc
     started */
  char option[] = "-malloc_debug", no[] = "no", left[] = "-options_left";
  char *petsc_argv[TRS_N_FIXED + TRS_N_LIBRARY + 1], **passed = petsc_argv;
  int n = early_arguments(0, NULL, petsc_argv);
  const char *theirs = getenv("PETSC_OPTIONS");
  char *kept = theirs ? strdup(theirs) : NULL;
  PetscBool started;
  PetscErrorCode ierr = PetscInitialized(&started);

  if (ierr == PETSC_SUCCESS && !started) {
    petsc_argv[n++] = option;
    petsc_argv[n++] = no;
    petsc_argv[n++] = left;
    petsc_argv[n++] = no;
    petsc_argv[n] = NULL;
    unsetenv("PETSC_OPTIONS"); /* a collection's options do not come from the environment */
    /* PETSC_COMM_WORLD has only this rank, because other ranks may have started earlier, in a
       smaller communicator */
    ierr = MPI_Comm_dup(MPI_COMM_SELF, &PETSC_COMM_WORLD) == MPI_SUCCESS ? PETSC_SUCCESS : PETSC_ERR_MPI;
    if (ierr == PETSC_SUCCESS) ierr = PetscInitialize(&n, &passed, NULL, NULL);
    if (kept) setenv("PETSC_OPTIONS", kept, 1);
  }
  free(kept);
  return ierr == PETSC_SUCCESS ? TrsEventsRegister() : ierr;
}

PetscErrorCode TrsStartCheckStack(void)
{
  struct rlimit limit;

  PetscFunctionBegin;
  if (getrlimit(RLIMIT_STACK, &limit) != 0 || limit.rlim_cur >= TRS_STACK_BYTES)
    PetscFunctionReturn(PETSC_SUCCESS);
  /* the main thread's stack can grow up to this limit */
  limit.rlim_cur = PetscMin(limit.rlim_max, TRS_STACK_BYTES);
  (void)setrlimit(RLIMIT_STACK, &limit);
  PetscCheck(limit.rlim_cur >= TRS_LEAST_STACK_BYTES, PETSC_COMM_SELF, TRS_ERR_MEMORY,
             "the stack is limited to %lld KiB (ulimit -s), at least %d KiB are needed",
             (long long)(limit.rlim_cur >> 10), TRS_LEAST_STACK_BYTES >> 10);
  PetscFunctionReturn(PETSC_SUCCESS);
}

/* Paths of the components of Open MPI and PMIx that are loaded in this process. */
typedef struct {
  int n;
  char *path[256];
} TrsComponents;

static int list_component(struct dl_phdr_info *info, size_t size, void *context)
{
  TrsComponents *list = (TrsComponents *)context;

  (void)size;
  if (list->n < 256 && (strstr(info->dlpi_name, "/mca_") || strstr(info->dlpi_name, "pmix")))
    list->path[list->n++] = strdup(info->dlpi_name);
  return 0;
}

/*
  Do not let MPI_Finalize() unload components. Open MPI 4.1 unloads them while its own thread still
  runs in them: on a busy machine, programs without mpirun ended with SIGSEGV after their work was
  done, in 1 of 100 starts.
*/
static void keep_components(void)
{
  TrsComponents list = {.n = 0};

  (void)dl_iterate_phdr(list_component, &list);
  for (int i = 0; i < list.n; i++) {
    if (list.path[i]) (void)dlopen(list.path[i], RTLD_NOW | RTLD_NOLOAD | RTLD_NODELETE);
    free(list.path[i]);
  }
}

/* Remove the fixed arguments that PETSc has read, so that -options_view does not show them. */
static PetscErrorCode forget_fixed(void)
{
  PetscFunctionBegin;
  for (int i = 1; i < TRS_N_FIXED; i++) PetscCall(PetscOptionsClearValue(NULL, fixed_arguments[i]));
  PetscFunctionReturn(PETSC_SUCCESS);
}

/*
  Keep PETSc from printing a warning about options that it did not read, unless the user gives
  -options_left. The options' check has already reported options that had no effect.
*/
static PetscErrorCode settle_left(void)
{
  char **names, **values;
  PetscBool asked, found;
  PetscInt n;

  PetscFunctionBegin;
  PetscCall(PetscOptionsHasName(NULL, NULL, "-options_left", &asked));
  if (asked) PetscFunctionReturn(PETSC_SUCCESS);
  PetscCall(PetscOptionsLeftGet(NULL, &n, &names, &values));
  for (PetscInt i = 0; i < n; i++) {
    char name[PETSC_MAX_PATH_LEN];

    PetscCall(PetscSNPrintf(name, sizeof(name), "-%s", names[i]));
    PetscCall(PetscOptionsHasName(NULL, NULL, name, &found));
  }
  PetscCall(PetscOptionsLeftRestore(NULL, &n, &names, &values));
  PetscFunctionReturn(PETSC_SUCCESS);
}

PetscErrorCode TrsStop(PetscBool has_failed)
{
  PetscErrorCode ierr;
  int lost, rank;

  /*
    A run that was refused must not replace a log file. Moreover, a failed allocation may have left
    NULL among PETSc's names, and a search for any option would crash on it.
  */
  if (has_failed) {
    (void)PetscOptionsClear(NULL);
  } else {
    (void)forget_fixed();
    (void)settle_left();
  }
  ierr = PetscFinalize();
  MPI_Comm_rank(MPI_COMM_WORLD, &rank);
  (void)fflush(stdout);
  if (ferror(stdout)) ierr = PETSC_SUCCESS; /* only -log_view could not be printed */
  lost = stdout_is_file && ferror(stdout);
  MPI_Allreduce(MPI_IN_PLACE, &lost, 1, MPI_INT, MPI_MAX, MPI_COMM_WORLD);
  if (lost && !has_failed && rank == 0)
    TrsPrint(stderr, "trshard: error: standard output cannot be written: its disk is full?\n");
  /* rank 0 must print its message before any rank ends, because mpirun ends it as soon as
     another rank has failed */
  if (lost) MPI_Barrier(MPI_COMM_WORLD);
  keep_components();
  MPI_Finalize();
  return ierr == PETSC_SUCCESS && lost ? TRS_ERR_IO : ierr;
}

void TrsStartWarning(char *text, size_t n)
{
  const char *tasks = getenv("SLURM_NTASKS");
  long n_tasks = tasks ? strtol(tasks, NULL, 10) : 0;
  int size = 1;

  MPI_Comm_size(MPI_COMM_WORLD, &size);
  text[0] = '\0';
  if (n_tasks > 1 && size == 1) {
    snprintf(text, n, "Slurm has %ld tasks but MPI sees one: use srun --mpi=pmix", n_tasks);
  }
}
