/* nexarCommAbort, and nexarCommDestroy of a rank that others wait for. */
#define _GNU_SOURCE
#include <sched.h>

#include "support/calls.h"
#include "support/ranks.h"

enum { RANKS = 3, LATE = 2 /* the rank that never makes the call */ };

struct wait {
  enum function function;
  atomic_int about_to_call;
  nexarResult_t results[RANKS];
  char texts[RANKS][300];
};

/* All ranks but one make a call that cannot complete without that one. */
static void wait_in_vain(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n;
  struct wait *wait = arg;
  int data[2 * RANKS] = {0};
  if (rank == LATE) return;
  struct call call = {.function = wait->function, .send = data, .recv = data + RANKS, .count = 1,
                      .datatype = nexarInt32, .comm = comm};
  atomic_fetch_add(&wait->about_to_call, 1);
  wait->results[rank] = make_call(call);
  strncpy(wait->texts[rank], nexarGetLastError(NULL), sizeof wait->texts[rank] - 1);
}

struct scene {
  nexarComm_t comms[RANKS];
  struct wait wait;
};

static void *wait_on_all_ranks(void *arg) {
  struct scene *scene = arg;
  run_threads(RANKS, scene->comms, wait_in_vain, &scene->wait);
  return NULL;
}

/*
 * Starts the waiting calls and ends the communicator of `victim` with `end` about when its call has
 * begun. False if that was too early, so that the victim's own call got an invalid handle.
 */
static bool end_while_waiting(struct scene *scene, enum function function, int victim,
                              nexarResult_t (*end)(nexarComm_t), long patience) {
  pthread_t waiting;
  memset(scene, 0, sizeof *scene);
  scene->wait.function = function;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(scene->comms, RANKS, NULL));
  CHECK_EQ(0, pthread_create(&waiting, NULL, wait_on_all_ranks, scene));
  while (atomic_load(&scene->wait.about_to_call) < RANKS - 1) sched_yield();
  for (long i = 0; i < patience; i++) sched_yield();
  CHECK_CODE(nexarSuccess, end(scene->comms[victim]));
  CHECK_EQ(0, pthread_join(waiting, NULL));
  return scene->wait.results[victim] != nexarInvalidArgument;
}

static void check_remote_error(const struct scene *scene, int rank, const char *culprit) {
  nexarResult_t error = nexarSuccess;
  CHECK_EQ(nexarRemoteError, scene->wait.results[rank]);
  CHECK_TEXT(scene->wait.texts[rank], function_names[scene->wait.function]);
  CHECK_TEXT(scene->wait.texts[rank], culprit);
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(scene->comms[rank], &error));
  CHECK_EQ(nexarRemoteError, error);
  CHECK_CODE(nexarRemoteError, nexarBarrier(scene->comms[rank], NULL));
  CHECK_TEXT(nexarGetLastError(scene->comms[rank]), culprit);
}

static void destroy_the_others(struct scene *scene, int victim) {
  for (int rank = 0; rank < RANKS; rank++)
    CHECK_CODE(rank == victim ? nexarInvalidArgument : nexarSuccess,
               nexarCommDestroy(scene->comms[rank]));
}

/* Calls in which every rank waits for all others. */
static const enum function waiting_calls[] = {
    ALL_REDUCE,   ALL_GATHER,       REDUCE_SCATTER, ALL_REDUCE_BUCKETED, ALL_TO_ALL,
    ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V,   BARRIER};

static void abort_ends_a_call_that_another_thread_is_inside(void) {
  for (size_t i = 0; i < COUNT_OF(waiting_calls); i++) {
    struct scene scene;
    long patience = 1;
    while (!end_while_waiting(&scene, waiting_calls[i], 0, nexarCommAbort, patience)) {
      destroy_the_others(&scene, 0);
      patience *= 2;
    }
    CHECK_EQ(nexarInvalidUsage, scene.wait.results[0]);
    CHECK_TEXT(scene.wait.texts[0], function_names[waiting_calls[i]]);
    CHECK_TEXT(scene.wait.texts[0], "aborted");
    check_remote_error(&scene, 1, "rank 0");
    destroy_the_others(&scene, 0);
  }
}

static void abort_of_a_rank_that_made_no_call_ends_the_calls_of_the_others(void) {
  for (size_t i = 0; i < COUNT_OF(waiting_calls); i++) {
    struct scene scene;
    end_while_waiting(&scene, waiting_calls[i], LATE, nexarCommAbort, 0);
    check_remote_error(&scene, 0, "rank 2 aborted");
    check_remote_error(&scene, 1, "rank 2 aborted");
    destroy_the_others(&scene, LATE);
  }
}

static void destroying_a_rank_that_others_wait_for_ends_their_calls(void) {
  for (size_t i = 0; i < COUNT_OF(waiting_calls); i++) {
    struct scene scene;
    end_while_waiting(&scene, waiting_calls[i], LATE, nexarCommDestroy, 0);
    check_remote_error(&scene, 0, "rank 2 has left");
    check_remote_error(&scene, 1, "rank 2 has left");
    destroy_the_others(&scene, LATE);
  }
}

static void abort_before_any_call_is_reported_to_the_other_ranks(void) {
  nexarComm_t comms[2];
  nexarResult_t error = nexarSuccess;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  CHECK_CODE(nexarSuccess, nexarCommAbort(comms[0]));
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comms[1], &error));
  CHECK_EQ(nexarRemoteError, error);
  CHECK_CODE(nexarRemoteError, nexarBarrier(comms[1], NULL));
  CHECK_TEXT(nexarGetLastError(comms[1]), "rank 0 aborted the communicator");
  CHECK_CODE(nexarSuccess, nexarCommFinalize(comms[1]));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[1]));
}

static void every_rank_may_abort(void) {
  nexarComm_t comms[4];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 4, NULL));
  for (int rank = 0; rank < 4; rank++) CHECK_CODE(nexarSuccess, nexarCommAbort(comms[rank]));
}

static void an_abort_leaves_other_communicators_alone(void) {
  nexarComm_t kept[2], aborted[2];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(kept, 2, NULL));
  CHECK_CODE(nexarSuccess, nexarCommInitAll(aborted, 2, NULL));
  CHECK_CODE(nexarSuccess, nexarCommAbort(aborted[0]));
  CHECK_CODE(nexarSuccess, nexarCommAbort(aborted[1]));
  run_threads(2, kept, it_works, NULL);
  for (int rank = 0; rank < 2; rank++) CHECK_CODE(nexarSuccess, nexarCommDestroy(kept[rank]));
}

static const struct test_case cases[] = {
    CASE(abort_ends_a_call_that_another_thread_is_inside),
    CASE(abort_of_a_rank_that_made_no_call_ends_the_calls_of_the_others),
    CASE(destroying_a_rank_that_others_wait_for_ends_their_calls),
    CASE(abort_before_any_call_is_reported_to_the_other_ranks),
    CASE(every_rank_may_abort),
    CASE(an_abort_leaves_other_communicators_alone),
};

int main(void) { return RUN(cases); }
