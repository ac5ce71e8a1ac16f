/* Threads that are cancelled during a call, or call from a destructor of their variables. */
#include <stdatomic.h>

#include "support/ranks.h"

/* C++ registers the destructors of thread_local variables with this function. */
extern int __cxa_thread_atexit_impl(void (*destroy)(void *), void *object, void *library);

struct rank {
  nexarComm_t comm;
  atomic_bool runs, is_cancelled;
};

static void on_own_thread(void *(*body)(void *), struct rank *rank, void *expected) {
  pthread_t thread;
  void *ended = NULL;
  CHECK_EQ(0, pthread_create(&thread, NULL, body, rank));
  if (expected == PTHREAD_CANCELED) {
    while (!rank->runs) continue;
    CHECK_EQ(0, pthread_cancel(thread));
    rank->is_cancelled = true;
  }
  CHECK_EQ(0, pthread_join(thread, &ended));
  CHECK(ended == expected);
}

static void *is_cancelled(void *arg) {
  struct rank *rank = arg;
  rank->runs = true;
  while (!rank->is_cancelled) continue;
  CHECK_CODE(nexarSuccess, nexarBarrier(rank->comm, NULL));
  pthread_testcancel();
  return NULL;
}

static void cancelled(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct rank self = {.comm = comm};
  on_own_thread(is_cancelled, &self, PTHREAD_CANCELED);
  check_it_works(rank, n, comm);
}

static void a_cancelled_thread_ends_after_its_call(void) {
  run_ranks(2, cancelled, NULL);
  run_ranks(3, cancelled, NULL);
}

static void barrier_at_the_end(void *arg) {
  struct rank *rank = arg;
  CHECK_CODE(nexarSuccess, nexarBarrier(rank->comm, NULL));
}

/* The library's thread-locals are created before and after the destructor is registered. */
static void *has_a_destructor(void *arg) {
  struct rank *rank = arg;
  nexarUniqueId id;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_EQ(0, __cxa_thread_atexit_impl(barrier_at_the_end, rank, NULL));
  CHECK_CODE(nexarSuccess, nexarBarrier(rank->comm, NULL));
  return NULL;
}

static void destroyed(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct rank self = {.comm = comm};
  on_own_thread(has_a_destructor, &self, NULL);
  check_it_works(rank, n, comm);
}

static void a_destructor_of_a_thread_can_make_calls(void) {
  run_ranks(2, destroyed, NULL);
  run_ranks(3, destroyed, NULL);
}

static const struct test_case cases[] = {
    CASE(a_cancelled_thread_ends_after_its_call),
    CASE(a_destructor_of_a_thread_can_make_calls),
};

int main(void) { return RUN(cases); }
