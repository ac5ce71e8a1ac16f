/* An operation that times out names the ranks that have not entered it. */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/ranks.h"

struct wait {
  enum function function;
  unsigned missing; /* a bit for each rank that never makes the call */
  pthread_barrier_t start; /* the others start together, so their deadlines are equal */
};

static bool is_missing(const struct wait *wait, int rank) { return wait->missing >> rank & 1; }

static void wait_for_the_missing(int rank, int n, nexarComm_t comm, void *arg) {
  struct wait *wait = arg;
  int data[16] = {0};
  char name[20];
  nexarResult_t error = nexarSuccess;
  if (is_missing(wait, rank)) return;
  struct call call = {.function = wait->function, .send = data, .recv = data + 8, .count = 1,
                      .datatype = nexarInt32, .comm = comm};
  pthread_barrier_wait(&wait->start);
  CHECK_CODE(nexarTimeout, make_call(call));
  CHECK_TEXT(nexarGetLastError(comm), function_names[wait->function]);
  CHECK_TEXT(nexarGetLastError(comm), "200 ms");
  for (int other = 0; other < n; other++) {
    snprintf(name, sizeof name, "rank %d", other);
    if (is_missing(wait, other)) CHECK_TEXT(nexarGetLastError(comm), name);
  }
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &error));
  CHECK_EQ(nexarTimeout, error);
}

/* The error is permanent: a rank that calls too late gets it too, without waiting. */
static void the_failure_stays(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)n, (void)arg;
  CHECK_CODE(nexarTimeout, nexarBarrier(comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "have not entered the call");
}

static void the_missing_are_named(enum function function, int n, unsigned missing) {
  nexarComm_t comms[MOST_RANKS];
  struct wait wait = {.function = function, .missing = missing};
  pthread_barrier_init(&wait.start, NULL, (unsigned)(n - __builtin_popcount(missing)));
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, n, NULL));
  run_threads(n, comms, wait_for_the_missing, &wait);
  if (__builtin_popcount(missing) > 1) run_threads(n, comms, the_failure_stays, NULL);
  for (int rank = 0; rank < n; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
  pthread_barrier_destroy(&wait.start);
}

static void a_missing_rank_is_named_by_all_others(void) {
  the_missing_are_named(ALL_REDUCE, 3, 1 << 2);
  the_missing_are_named(ALL_GATHER, 3, 1 << 0);
  the_missing_are_named(REDUCE_SCATTER, 3, 1 << 1);
  the_missing_are_named(ALL_TO_ALL, 3, 1 << 0);
  the_missing_are_named(ALL_GATHER_V, 3, 1 << 1);
  the_missing_are_named(ALL_TO_ALL_V, 3, 1 << 2);
  the_missing_are_named(SCAN, 3, 1 << 0);
  the_missing_are_named(EX_SCAN, 3, 1 << 0);
  the_missing_are_named(BARRIER, 3, 1 << 2);
}

static void several_missing_ranks_are_all_named(void) {
  the_missing_are_named(ALL_REDUCE, 5, 1 << 1 | 1 << 3);
  the_missing_are_named(BARRIER, 4, 1 << 0 | 1 << 2 | 1 << 3);
}

static void a_receiver_names_the_missing_root(void) {
  nexarComm_t comms[2];
  int data = 0;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  CHECK_CODE(nexarTimeout, nexarBcast(&data, 1, nexarInt32, 1, comms[0], NULL));
  CHECK_TEXT(nexarGetLastError(comms[0]), "rank 1 has not entered the call");
  for (int rank = 0; rank < 2; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
}

static void *destroy(void *comm) {
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
  return NULL;
}

/* nexarCommDestroy waits for operations, which end at their deadline. */
static void destroying_a_communicator_in_use_waits_no_longer_than_its_operation(void) {
  nexarComm_t comms[2];
  pthread_t thread;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  CHECK_EQ(0, pthread_create(&thread, NULL, destroy, comms[0]));
  nexarResult_t result = nexarBarrier(comms[0], NULL);
  CHECK(result == nexarTimeout || result == nexarInvalidUsage || result == nexarInvalidArgument);
  CHECK_EQ(0, pthread_join(thread, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[1]));
}

static const struct test_case cases[] = {
    CASE(a_missing_rank_is_named_by_all_others),
    CASE(several_missing_ranks_are_all_named),
    CASE(a_receiver_names_the_missing_root),
    CASE(destroying_a_communicator_in_use_waits_no_longer_than_its_operation),
};

int main(void) {
  setenv("NEXAR_OP_TIMEOUT_MS", "200", 1); /* read at the first call */
  return RUN(cases);
}
