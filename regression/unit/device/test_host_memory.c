/* SPDX-License-Identifier: BSD-3-Clause */
/* TEST ranks: 1 */
/*
  Tests how much memory control groups leave to a job. The test makes folders with files as in /proc
  and /sys. Expected bytes are written by hand.
*/
#include "device/host_memory.h"
#include "trs_test.h"

#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <unistd.h>

enum { MIB = 1 << 20 };

static char root[64];

/* Write a file, and create the folders above it. */
static void write_text(const char *file, const char *text)
{
  char path[512];
  FILE *out;

  snprintf(path, sizeof(path), "%s/%s", root, file);
  for (char *slash = path + strlen(root) + 1; (slash = strchr(slash, '/')); *slash++ = '/') {
    *slash = '\0';
    (void)mkdir(path, 0755);
  }
  out = fopen(path, "w");
  assert_non_null(out);
  assert_true(fputs(text, out) >= 0);
  assert_int_equal(fclose(out), 0);
}

static int make_tree(void **state)
{
  (void)state;
  snprintf(root, sizeof(root), "/tmp/trs_memory_XXXXXX");
  assert_non_null(mkdtemp(root));
  write_text("proc/meminfo",
             "MemTotal: 999 kB\nMemAvailable:    3072 kB\nSwapCached: 7 kB\nSwapFree: 1024 kB\n");
  return 0;
}

static int remove_tree(void **state)
{
  char command[96];

  (void)state;
  snprintf(command, sizeof(command), "rm -r %s", root);
  return system(command); /* NOLINT(cert-env33-c): the folder is our own */
}

static void check_memory(int64_t free_bytes, int64_t total_bytes)
{
  const int64_t physical = (int64_t)sysconf(_SC_PHYS_PAGES) * (int64_t)sysconf(_SC_PAGESIZE);
  const TrsHostMemory memory = TrsHostMemoryGet(root);

  assert_int_equal(memory.free_bytes, free_bytes);
  assert_int_equal(memory.total_bytes, total_bytes ? total_bytes : physical);
}

static void test_without_groups(void **state)
{
  (void)state;
  check_memory(4LL * MIB, 0);
}

/*
  The job's limit is 8 MiB. 6 MiB are used, including 1 MiB of caches. So less memory is left than
  the host has. The step has no limit.
*/
static void test_version_2(void **state)
{
  (void)state;
  write_text("proc/self/cgroup", "0::/slurm/job_7/step_0\n");
  write_text("sys/fs/cgroup/slurm/job_7/step_0/memory.max", "max\n");
  write_text("sys/fs/cgroup/slurm/job_7/step_0/memory.current", "6291456\n");
  write_text("sys/fs/cgroup/slurm/job_7/memory.max", "8388608\n");
  write_text("sys/fs/cgroup/slurm/job_7/memory.current", "6291456\n");
  write_text("sys/fs/cgroup/slurm/job_7/memory.stat",
             "anon 99\nfile 4194304\ninactive_file 786432\nactive_file 262144\n");
  check_memory(3LL * MIB, 8LL * MIB);
  /* a limit was lowered below the memory in use */
  write_text("sys/fs/cgroup/slurm/job_7/memory.current", "9437184\n");
  check_memory(0, 8LL * MIB);
}

/*
  Version 1 of control groups, with version 2 mounted without controllers. The lowest limit is two
  groups above.
*/
static void test_version_1(void **state)
{
  (void)state;
  write_text("proc/self/cgroup",
             "9:name=systemd:/\n4:cpu,memory:/slurm/uid_0/job_7\n3:cpuset,memoryless:/no\n0::/x\n");
  write_text("sys/fs/cgroup/memory/slurm/uid_0/job_7/memory.limit_in_bytes", "9223372036854771712\n");
  write_text("sys/fs/cgroup/memory/slurm/uid_0/job_7/memory.usage_in_bytes", "1048576\n");
  write_text("sys/fs/cgroup/memory/slurm/memory.limit_in_bytes", "4194304\n");
  write_text("sys/fs/cgroup/memory/slurm/memory.usage_in_bytes", "3145728\n");
  write_text("sys/fs/cgroup/memory/slurm/memory.stat",
             "inactive_file 5\ntotal_inactive_file 524288\ntotal_active_file 524288\n");
  check_memory(2LL * MIB, 4LL * MIB);
}

/*
  In a container, the path of the group is the host's path, but the mount is the container's mount.
*/
static void test_container(void **state)
{
  (void)state;
  write_text("proc/self/cgroup", "0::/docker/4711\n");
  write_text("sys/fs/cgroup/memory.max", "2097152\n");
  write_text("sys/fs/cgroup/memory.current", "1048576\n");
  check_memory(MIB, 2LL * MIB);
}

TRS_TEST_MAIN(cmocka_unit_test_setup_teardown(test_without_groups, make_tree, remove_tree),
              cmocka_unit_test_setup_teardown(test_version_2, make_tree, remove_tree),
              cmocka_unit_test_setup_teardown(test_version_1, make_tree, remove_tree),
              cmocka_unit_test_setup_teardown(test_container, make_tree, remove_tree))
