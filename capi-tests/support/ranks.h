/*
 * Runs a function on every rank of a communicator.
 *
 * Ranks are threads, with a new communicator for each run. If nexar-run has started the program,
 * ranks are processes: this process is one rank, all cases share one communicator, and runs with
 * another number of ranks are skipped.
 */
#ifndef RANKS_H
#define RANKS_H

#include <pthread.h>

#include "check.h"

#define MOST_RANKS 32

typedef void rank_function(int rank, int n, nexarComm_t comm, void *arg);

struct rank_thread {
  pthread_t thread;
  int rank, n;
  nexarComm_t comm;
  rank_function *function;
  void *arg;
};

static inline void *rank_main(void *arg) {
  struct rank_thread *self = arg;
  self->function(self->rank, self->n, self->comm, self->arg);
  return NULL;
}

/* Calls the function on n threads at once; comms may be NULL. */
static inline void run_threads(int n, nexarComm_t *comms, rank_function *function, void *arg) {
  struct rank_thread ranks[MOST_RANKS];
  for (int rank = 0; rank < n; rank++) {
    nexarComm_t comm = comms ? comms[rank] : NULL;
    ranks[rank] = (struct rank_thread){0, rank, n, comm, function, arg};
    CHECK_EQ(0, pthread_create(&ranks[rank].thread, NULL, rank_main, &ranks[rank]));
  }
  for (int rank = 0; rank < n; rank++) CHECK_EQ(0, pthread_join(ranks[rank].thread, NULL));
}

/* The communicator of nexar-run's environment; NULL if ranks are threads. */
static nexarComm_t world;

static inline void leave_world(void) {
  nexarResult_t left = nexarCommDestroy(world);
  if (left == nexarSuccess) return;
  fprintf(stderr, "nexarCommDestroy returned %d at the end\n", (int)left);
  _exit(1);
}

static inline bool ranks_are_processes(void) {
  static bool known;
  if (!known && getenv("NEXAR_RANK")) {
    if (nexarCommInitFromEnv(&world) != nexarSuccess) {
      fprintf(stderr, "%s\n", nexarGetLastError(NULL));
      exit(1);
    }
    atexit(leave_world);
  }
  known = true;
  return world;
}

/* Whether run_ranks can run n ranks here. Counts the part of the case as run or as skipped. */
static inline bool can_run(int n) {
  int size = n;
  if (ranks_are_processes()) CHECK_CODE(nexarSuccess, nexarCommCount(world, &size));
  (size == n ? check_parts++ : check_parts_skipped++);
  return size == n;
}

/* With CHECK_ANY_SIZE, jobs run on all processes of the world instead of on n ranks. */
static inline int size_of_job(int n) {
  if (getenv("CHECK_ANY_SIZE") && ranks_are_processes())
    CHECK_CODE(nexarSuccess, nexarCommCount(world, &n));
  return n;
}

/* For cases whose ranks read each other's memory. False, and skipped, if ranks are processes. */
static inline bool can_share_memory(void) {
  if (ranks_are_processes()) check_parts_skipped++;
  return !ranks_are_processes();
}

/* Runs the function on n threads with a new communicator, or once if ranks are processes. */
static inline void run_ranks(int n, rank_function *function, void *arg) {
  if (!can_run(n)) return;
  if (ranks_are_processes()) {
    int rank = -1;
    CHECK_CODE(nexarSuccess, nexarCommUserRank(world, &rank));
    function(rank, n, world, arg);
    return;
  }
  nexarComm_t comms[MOST_RANKS];
  nexarResult_t made = nexarCommInitAll(comms, n, NULL);
  CHECK_CODE(nexarSuccess, made);
  if (made != nexarSuccess) return;
  run_threads(n, comms, function, arg);
  for (int rank = 0; rank < n; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
}

static inline void on_every_size(rank_function *function) {
  for (int n = 1; n <= 4; n++) run_ranks(n, function, NULL);
}

/* A call of all ranks: returns another communicator of them after all have joined it. */
static inline nexarComm_t join_another(int rank, int n, nexarComm_t comm) {
  nexarUniqueId id = {{0}};
  nexarComm_t another = NULL;
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarBcast(&id, sizeof id, nexarInt8, 0, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&another, n, id, rank));
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  return another;
}

/* A call of all ranks: an all-reduce gives the right result. */
static inline void check_it_works(int rank, int n, nexarComm_t comm) {
  int32_t data[3] = {rank, 1, -rank};
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, 3, nexarInt32, nexarSum, comm, NULL));
  CHECK_EQ(n * (n - 1) / 2, data[0]);
  CHECK_EQ(n, data[1]);
  CHECK_EQ(-n * (n - 1) / 2, data[2]);
  progress();
}

static inline void it_works(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  check_it_works(rank, n, comm);
}

#endif
