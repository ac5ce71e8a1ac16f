/*
 * Passes TRIES invalid handles to every function that takes a handle:
 *
 *     handles TRIES
 *
 * One half are random numbers, the others stale handles of communicators, streams and
 * registrations. Prints for each function how often it did not return nexarInvalidArgument.
 */
#include "support/handles.h"

enum { STALE = 999 };

static void *stale[STALE];

static void make_stale_handles(void) {
  for (int i = 0; i < STALE; i += 3) {
    nexarComm_t comm = NULL;
    CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
    CHECK_CODE(nexarSuccess, nexarStreamCreate(&stale[i]));
    CHECK_CODE(nexarSuccess, nexarCommRegister(comm, untouched.data, 4, &stale[i + 1]));
    CHECK_CODE(nexarSuccess, nexarStreamDestroy(stale[i]));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
    stale[i + 2] = comm;
  }
}

static uint64_t next_random(void) {
  static uint64_t state = 0x9e3779b97f4a7c15;
  state ^= state << 13;
  state ^= state >> 7;
  state ^= state << 17;
  return state;
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  long tries = atol(argv[1]);
  begin_watch();
  make_stale_handles();
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&live_comm, 1, NULL));
  for (size_t way = 0; way < WAYS_TO_PASS; way++) {
    long wrong = 0;
    for (long i = 0; i < tries; i++) {
      void *handle = i % 2 ? stale[i / 2 % STALE] : (void *)(uintptr_t)next_random();
      if (handle != live_comm) wrong += pass_handle(way, handle) != nexarInvalidArgument;
    }
    printf("%s|%ld\n", way_name(way), wrong);
    progress();
  }
  CHECK(is_untouched());
  CHECK_CODE(nexarSuccess, nexarBarrier(live_comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(live_comm));
  return check_failures != 0;
}
