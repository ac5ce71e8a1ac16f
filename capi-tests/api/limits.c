/*
 * Resource limits of a process: the size of files and the number of open files. Each case runs in
 * new processes; this one never uses nexar.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <time.h>

#include "support/ranks.h"

static void limit(int resource, rlim_t most) {
  struct rlimit limits;
  CHECK_EQ(0, getrlimit(resource, &limits));
  limits.rlim_cur = most;
  CHECK_EQ(0, setrlimit(resource, &limits));
}

/* Starts a child that runs the function and exits with 1 if a check fails. */
static pid_t start(void (*function)(int number, int ids[2]), int number, int ids[2]) {
  pid_t child = fork();
  if (child == 0) {
    begin_watch();
    int before = check_failures;
    function(number, ids);
    exit(check_failures != before);
  }
  return child;
}

static void check_end(pid_t child) {
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_EQ(0, status);
}

/* Runs the function in two processes; rank 0 sends the id through the pipe `ids`. */
static void in_two_ranks(void (*function)(int rank, int ids[2])) {
  int ids[2];
  CHECK_EQ(0, pipe(ids));
  pid_t first = start(function, 0, ids), second = start(function, 1, ids);
  check_end(first);
  check_end(second);
  close(ids[0]);
  close(ids[1]);
}

static nexarComm_t join(int rank, int ids[2]) {
  nexarUniqueId id;
  nexarComm_t comm = NULL;
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
    CHECK_EQ(sizeof id, write(ids[1], &id, sizeof id));
  } else {
    CHECK_EQ(sizeof id, read(ids[0], &id, sizeof id));
  }
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&comm, 2, id, rank));
  return comm;
}

static const rlim_t file_sizes[] = {0, 1, 4096, 100000, 16 << 20, (rlim_t)1 << 30};

static void allocate(int number, int ids[2]) {
  (void)ids;
  unsigned char *memory = NULL;
  limit(RLIMIT_FSIZE, file_sizes[number]);
  CHECK_CODE(nexarSuccess, nexarMemAlloc((void **)&memory, 1000000));
  memset(memory, 7, 1000000);
  CHECK_CODE(nexarSuccess, nexarMemFree(memory));
}

static void memory_is_allocated_whatever_the_limit_on_the_size_of_files(void) {
  for (int i = 0; i < (int)COUNT_OF(file_sizes); i++) check_end(start(allocate, i, NULL));
}

static void join_and_work(int rank, int ids[2]) {
  nexarComm_t comm = join(rank, ids);
  check_it_works(rank, 2, comm);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static void join_with_small_files(int rank, int ids[2]) {
  limit(RLIMIT_FSIZE, 100000);
  join_and_work(rank, ids);
}

static void join_with_small_files_on_one_rank(int rank, int ids[2]) {
  if (rank == 1) limit(RLIMIT_FSIZE, 1);
  join_and_work(rank, ids);
}

static void ranks_join_and_work_whatever_the_limit_on_the_size_of_files(void) {
  in_two_ranks(join_with_small_files);
  in_two_ranks(join_with_small_files_on_one_rank);
}

static int open_files(void) {
  int number = 0;
  DIR *files = opendir("/proc/self/fd");
  while (files && readdir(files)) number++;
  if (files) closedir(files);
  return number;
}

static void fail_and_raise_the_limit(int number, int ids[2]) {
  (void)number;
  (void)ids;
  struct rlimit before;
  nexarUniqueId id;
  CHECK_EQ(0, getrlimit(RLIMIT_NOFILE, &before));
  limit(RLIMIT_NOFILE, 3);
  CHECK_CODE(nexarSystemError, nexarGetUniqueId(&id));
  CHECK_TEXT(nexarGetLastError(NULL), "Too many open files");
  limit(RLIMIT_NOFILE, before.rlim_cur);
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
}

static void a_call_that_failed_for_lack_of_descriptors_works_when_there_are_some(void) {
  check_end(start(fail_and_raise_the_limit, 0, NULL));
}

/* Opens files until no more can be opened. */
static void use_up_all_descriptors(void) {
  limit(RLIMIT_NOFILE, (rlim_t)open_files() + 20);
  while (dup(0) >= 0) continue;
}

/* After this time, ranks of a host no longer wait for each other's shared memory. */
enum { SHARING_GIVES_UP_S = 10 };

static void split_without_descriptors(int rank, int ids[2], int starved) {
  nexarComm_t first = join(rank, ids), second = NULL;
  check_it_works(rank, 2, first);
  if (rank == starved) use_up_all_descriptors();
  double before = seconds_now();
  CHECK_CODE(nexarSuccess, nexarCommSplit(first, 0, rank, &second, NULL));
  check_it_works(rank, 2, second);
  CHECK_TIME(5, SHARING_GIVES_UP_S, seconds_now() - before);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(second));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(first));
}
static void split_with_a_starved_first_rank(int rank, int ids[2]) {
  split_without_descriptors(rank, ids, 0);
}
static void split_with_a_starved_last_rank(int rank, int ids[2]) {
  split_without_descriptors(rank, ids, 1);
}

static void no_rank_waits_for_the_shared_memory_of_a_rank_that_has_no_descriptor_left(void) {
  in_two_ranks(split_with_a_starved_first_rank);
  in_two_ranks(split_with_a_starved_last_rank);
}

static void join_often(int rank, int ids[2]) {
  enum { COMMUNICATORS = 5 };
  nexarComm_t comms[COMMUNICATORS];
  int before = 0;
  for (int i = 0; i < COMMUNICATORS; i++) {
    comms[i] = join(rank, ids);
    for (int j = 0; j <= i; j++) check_it_works(rank, 2, comms[j]);
    if (i == 0) before = open_files();
  }
  /* A communicator may close its bootstrap sockets a moment later. */
  for (int i = 0; i < 100 && open_files() > before; i++) check_it_works(rank, 2, comms[0]);
  CHECK_EQ(before, open_files());
  for (int i = 0; i < COMMUNICATORS; i++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[i]));
}

static void communicators_of_the_same_processes_share_their_descriptors(void) {
  in_two_ranks(join_often);
}

static const struct test_case cases[] = {
    CASE(memory_is_allocated_whatever_the_limit_on_the_size_of_files),
    CASE(ranks_join_and_work_whatever_the_limit_on_the_size_of_files),
    CASE(a_call_that_failed_for_lack_of_descriptors_works_when_there_are_some),
    CASE(no_rank_waits_for_the_shared_memory_of_a_rank_that_has_no_descriptor_left),
    CASE(communicators_of_the_same_processes_share_their_descriptors),
};

int main(void) { return RUN(cases); }
