/*
 * Processes that a case starts itself, because some of them must die. Each is a rank with a device.
 * They share a page with their unique ids and the steps that they have reached.
 */
#ifndef PEERS_H
#define PEERS_H

#include <sys/mman.h>
#include <sys/wait.h>

#include "processes.h"
#include "device_rank.h"

enum { MOST_PEERS = 4, MOST_STEPS = 8, NO_VICTIM = -1 };

static struct {
  nexarUniqueId ids[2];
  atomic_bool has_id[2];
  atomic_int processes[MOST_PEERS]; /* their ids */
  atomic_int steps[MOST_STEPS];
} *shared;

/* Waits without a limit: the watch ends a process that makes no progress. */
#define AWAIT(condition)                                                                           \
  do {                                                                                             \
    while (!(condition)) usleep(100);                                                              \
  } while (0)

/* Counts this rank at a step. await_all then waits for all ranks. */
static inline void arrive(int step) { atomic_fetch_add(&shared->steps[step], 1); }
static inline void await_all(int step, int n) {
  arrive(step);
  AWAIT(atomic_load(&shared->steps[step]) >= n);
}

/* Collective: creates a communicator of ranks 0 to n - 1. number: of the unique id. */
static inline nexarComm_t join_peers(int rank, int n, int number, const nexarConfig_t *config) {
  nexarComm_t comm = NULL;
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarGetUniqueId(&shared->ids[number]));
    atomic_store(&shared->has_id[number], true);
  }
  AWAIT(atomic_load(&shared->has_id[number]));
  CHECK_CODE(nexarSuccess, nexarCommInitRankConfig(&comm, n, shared->ids[number], rank, config));
  return comm;
}

static inline void kill_peer(int rank) {
  AWAIT(atomic_load(&shared->processes[rank]) > 0);
  CHECK_EQ(0, kill(shared->processes[rank], SIGKILL));
}

typedef void peer_function(int rank, int n);

static inline void be_peer(int rank, int n, const char *settings, peer_function *function) {
  begin_watch();
  put_settings(settings);
  check_failures = 0;
  function(rank, n);
  fflush(NULL);
  exit(check_failures != 0);
}

/* Starts n ranks and waits until they have ended: the victim by SIGKILL, the others with 0. */
static inline void run_peers(int n, int victim, const char *settings, peer_function *function) {
  void *page =
      mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS, -1, 0);
  if (page == MAP_FAILED) abort();
  shared = page;
  fflush(NULL);
  for (int rank = 0; rank < n; rank++) {
    pid_t process = fork();
    if (process == 0) be_peer(rank, n, settings, function);
    CHECK(process > 0);
    atomic_store(&shared->processes[rank], process);
  }
  for (int rank = 0; rank < n; rank++) {
    int status = -1, process = shared->processes[rank];
    CHECK_EQ(process, waitpid(process, &status, 0));
    bool killed = WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL;
    if (rank == victim ? killed : status == 0) continue;
    check_failed(__FILE__, __LINE__, "rank %d ended with status %d", rank, status);
  }
  munmap(page, sizeof *shared);
}

#endif
