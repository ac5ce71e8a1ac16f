/* fork: in the child of a process that has used nexar every call fails, without harm to others. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "support/calls.h"
#include "support/ranks.h"

/* Runs the function in a child and fails if a check in the child fails. */
static void in_a_child(void (*function)(void), void (*leave)(int)) {
  pid_t child = fork();
  if (child == 0) {
    begin_watch();
    int before = check_failures;
    function();
    leave(check_failures != before);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK_EQ(0, status);
}

static void work_in_three_ranks(void) { run_ranks(3, it_works, NULL); }

static void a_child_of_a_process_that_has_not_used_nexar_works(void) {
  in_a_child(work_in_three_ranks, _exit);
  in_a_child(work_in_three_ranks, exit);
}

/* A stream that waits in vain, a communicator that is being created, a group without an end. */
static void leave_work_behind(void) {
  nexarComm_t comms[2], unmade = NULL;
  nexarStream_t stream = NULL;
  nexarUniqueId id;
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.blocking = 0;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  for (int i = 0; i < 3; i++) CHECK_CODE(nexarSuccess, nexarBarrier(comms[0], stream));
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarInProgress, nexarCommInitRankConfig(&unmade, 2, id, 0, &config));
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarBarrier(comms[1], NULL));
}

static void a_process_may_end_with_work_that_never_ends(void) {
  in_a_child(leave_work_behind, exit);
}

static nexarComm_t inherited;
static nexarStream_t inherited_stream;

static void check_refused(nexarResult_t result, const char *function) {
  CHECK_CODE(nexarInvalidUsage, result);
  CHECK_TEXT(nexarGetLastError(NULL), function);
  CHECK_TEXT(nexarGetLastError(NULL), "forked");
}

static void everything_is_refused(void) {
  int number = 77, data[4] = {0};
  nexarResult_t error = nexarTimeout;
  nexarComm_t made = NULL;
  check_refused(nexarGetVersion(&number), "nexarGetVersion");
  check_refused(nexarCommInitAll(&made, 1, NULL), "nexarCommInitAll");
  nexarUniqueId id = {{0}};
  check_refused(nexarGetUniqueId(&id), "nexarGetUniqueId");
  check_refused(nexarCommInitRank(&made, 1, id, 0), "nexarCommInitRank");
  check_refused(nexarCommInitRankConfig(&made, 1, id, 0, NULL), "nexarCommInitRankConfig");
  check_refused(nexarCommInitFromEnv(&made), "nexarCommInitFromEnv");
  void *memory = NULL;
  check_refused(nexarGroupStart(), "nexarGroupStart");
  check_refused(nexarGroupEnd(), "nexarGroupEnd");
  check_refused(nexarStreamCreate(&memory), "nexarStreamCreate");
  check_refused(nexarStreamQuery(inherited_stream), "nexarStreamQuery");
  check_refused(nexarStreamSynchronize(inherited_stream), "nexarStreamSynchronize");
  check_refused(nexarStreamDestroy(inherited_stream), "nexarStreamDestroy");
  check_refused(nexarBarrier(inherited, inherited_stream), "nexarBarrier");
  check_refused(nexarMemAlloc(&memory, 8), "nexarMemAlloc");
  check_refused(nexarMemFree(NULL), "nexarMemFree");
  CHECK(memory == NULL);
  const nexarComm_t comms[] = {inherited, NULL, (nexarComm_t)&number};
  for (size_t i = 0; i < COUNT_OF(comms); i++) {
    check_refused(nexarCommCount(comms[i], &number), "nexarCommCount");
    check_refused(nexarCommUserRank(comms[i], &number), "nexarCommUserRank");
    check_refused(nexarCommGetAsyncError(comms[i], &error), "nexarCommGetAsyncError");
    check_refused(nexarCommFinalize(comms[i]), "nexarCommFinalize");
    check_refused(nexarCommDestroy(comms[i]), "nexarCommDestroy");
    check_refused(nexarCommAbort(comms[i]), "nexarCommAbort");
    for (enum function f = 0; f < FUNCTIONS; f++) {
      struct call call = {.function = f, .send = data, .recv = data + 2, .count = 2,
                          .datatype = nexarInt32, .comm = comms[i]};
      check_refused(make_call(call), function_names[f]);
    }
  }
  CHECK_EQ(77, number);
  CHECK_EQ(nexarTimeout, error);
  CHECK(made == NULL);
  CHECK_TEXT(nexarGetErrorString(nexarInvalidUsage), "usage");
  CHECK(nexarGetLastError(inherited) != NULL);
}

static void in_a_grandchild(void) { in_a_child(everything_is_refused, _exit); }

static void a_child_is_refused_everything_and_the_parent_goes_on(void) {
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&inherited, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&inherited_stream));
  check_it_works(0, 1, inherited);
  in_a_child(everything_is_refused, _exit);
  check_it_works(0, 1, inherited);
  in_a_child(everything_is_refused, exit);
  check_it_works(0, 1, inherited);
  in_a_child(in_a_grandchild, _exit);
  check_it_works(0, 1, inherited);
  CHECK_CODE(nexarSuccess, nexarBarrier(inherited, inherited_stream));
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(inherited_stream));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(inherited));
  work_in_three_ranks();
}

/* clone runs no handler of pthread_atfork. */
static void a_child_of_the_system_call_clone_is_refused_everything(void) {
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&inherited, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&inherited_stream));
  long child = syscall(SYS_clone, SIGCHLD, 0, 0, 0, 0);
  if (child == 0) {
    alarm(PATIENCE_S); /* this child cannot start a watchdog thread */
    int before = check_failures;
    everything_is_refused();
    _exit(check_failures != before);
  }
  int status = -1;
  CHECK(child > 0 && waitpid((pid_t)child, &status, 0) == child);
  CHECK_EQ(0, status);
  check_it_works(0, 1, inherited);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(inherited_stream));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(inherited));
}

static void a_child_cannot_reach_the_memory_that_was_allocated_for_its_parent(void) {
  char *memory = NULL;
  CHECK_CODE(nexarSuccess, nexarMemAlloc((void **)&memory, 7));
  strcpy(memory, "parent");
  pid_t child = fork();
  if (child == 0) {
    struct rlimit no_core = {0, 0};
    setrlimit(RLIMIT_CORE, &no_core);
    strcpy(memory, "child!");
    _exit(0);
  }
  int status = 0;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
  CHECK(strcmp(memory, "parent") == 0);
  CHECK_CODE(nexarSuccess, nexarMemFree(memory));
}

/* A child inherits locks in any state, so it must not take them. */
static void reduce(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int32_t sum = rank; /* reports no progress: this loop goes on if the test hangs */
  CHECK_CODE(nexarSuccess, nexarAllReduce(&sum, &sum, 1, nexarInt32, nexarSum, comm, NULL));
  CHECK_EQ(n * (n - 1) / 2, sum);
}

static void *compute(void *stop) {
  while (!atomic_load((atomic_bool *)stop)) run_ranks(2, reduce, NULL);
  return NULL;
}

static void a_child_is_refused_while_other_threads_of_the_parent_are_inside(void) {
  atomic_bool stop = false;
  pthread_t thread;
  CHECK_EQ(0, pthread_create(&thread, NULL, compute, &stop));
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&inherited, 1, NULL));
  for (int i = 0; i < 50; i++) in_a_child(everything_is_refused, _exit);
  check_it_works(0, 1, inherited);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(inherited));
  atomic_store(&stop, true);
  CHECK_EQ(0, pthread_join(thread, NULL));
}

static const struct test_case cases[] = {
    CASE(a_child_of_a_process_that_has_not_used_nexar_works), /* before the first use */
    CASE(a_process_may_end_with_work_that_never_ends),        /* as well */
    CASE(a_child_is_refused_everything_and_the_parent_goes_on),
    CASE(a_child_of_the_system_call_clone_is_refused_everything),
    CASE(a_child_cannot_reach_the_memory_that_was_allocated_for_its_parent),
    CASE(a_child_is_refused_while_other_threads_of_the_parent_are_inside),
};

int main(void) { return RUN(cases); }
