/* 128 KiB of stack are enough for every collective: a thread's stack is touched no deeper. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "support/collectives.h"

enum { PROMISED = 128 << 10, STACK = 256 << 10, UNTOUCHED = 0xee };

/* A call that a thread of its own makes, and nothing else. */
struct errand {
  const struct share *share;
  void *send, *recv;
  nexarResult_t result;
};

static void *run_the_errand(void *arg) {
  struct errand *errand = arg;
  const struct share *share = errand->share;
  errand->result = share->job->collective->call(share, errand->send, errand->recv);
  return NULL;
}

/* Runs it and tells how much of the stack it used. */
static size_t stack_used(struct errand *errand) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
  pthread_attr_t attributes;
  pthread_t thread;
  size_t lowest = 0;
  if (stack == MAP_FAILED) abort();
  memset(stack, UNTOUCHED, STACK);
  CHECK_EQ(0, pthread_attr_init(&attributes));
  CHECK_EQ(0, pthread_attr_setstack(&attributes, stack, STACK));
  CHECK_EQ(0, pthread_create(&thread, &attributes, run_the_errand, errand));
  CHECK_EQ(0, pthread_join(thread, NULL));
  CHECK_EQ(0, pthread_attr_destroy(&attributes));
  while (lowest < STACK && stack[lowest] == UNTOUCHED) lowest++;
  munmap(stack, STACK);
  return STACK - lowest;
}

static void keep(const void *in, void *inout, size_t count, nexarDataType_t datatype, void *user) {
  (void)in, (void)inout, (void)count, (void)datatype, (void)user;
}

static void measure(int rank, int n, nexarComm_t comm, void *arg) {
  struct job *job = arg;
  struct share share = {.job = job, .rank = rank, .n = n, .comm = comm};
  nexarRedOp_t created;
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&created, keep, NULL, 0, comm));
  for (int function = 0; function < 2; function++) {
    share.send.number = share.recv.number = 0, share.send.extent = share.recv.extent = 0;
    job->collective->lay_out(&share);
    struct guarded send = guarded(share.send.extent * 4, 1);
    struct guarded recv = guarded(share.recv.extent * 4, 2);
    struct errand errand = {&share, send.at, recv.at, nexarTimeout};
    share.operator.code = function ? created : nexarSum;
    if (job->collective->has_one_buffer) errand.send = errand.recv;
    size_t used = stack_used(&errand);
    CHECK_CODE(nexarSuccess, errand.result);
    if (used > PROMISED)
      check_failed(__FILE__, __LINE__, "%s of %zu elements by %s used %zu bytes",
                   job->collective->name, job->count, function ? "a function" : "a sum", used);
    check_guards(send);
    check_guards(recv);
  }
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(created, comm));
}

static void sixty_four_kib_of_stack_are_enough_for_every_collective(void) {
  const size_t counts[] = {3, 1000, 100001};
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(every_collective); c++)
      for (size_t k = 0; k < COUNT_OF(counts); k++) {
        struct job job = {.collective = every_collective[c], .dtype = dtype_of(nexarFloat32),
                          .count = counts[k], .lengths = RAGGED, .places = SPREAD, .buffers = 9};
        run_ranks(sizes[i], measure, &job);
      }
}

static const struct test_case cases[] = {
    CASE(sixty_four_kib_of_stack_are_enough_for_every_collective),
};

int main(void) { return RUN(cases); }
