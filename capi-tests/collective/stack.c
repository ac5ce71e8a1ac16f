/* 128 KiB of stack are enough for every collective: no call touches more of its thread's stack. */
#define _GNU_SOURCE
#include <sys/mman.h>

#include "support/collectives.h"

enum { PROMISED = 128 << 10, STACK = 256 << 10, UNTOUCHED = 0xee };

/* One call, made by a new thread. */
struct stack_call {
  const struct share *share;
  void *send, *recv;
  nexarResult_t result;
};

static void *make_call_on_stack(void *arg) {
  struct stack_call *stack_call = arg;
  const struct share *share = stack_call->share;
  stack_call->result = share->job->collective->call(share, stack_call->send, stack_call->recv);
  return NULL;
}

/* Makes the call in a new thread. Returns how much of the stack was used. */
static size_t stack_used(struct stack_call *stack_call) {
  const int flags = MAP_PRIVATE | MAP_ANONYMOUS;
  unsigned char *stack = mmap(NULL, STACK, PROT_READ | PROT_WRITE, flags, -1, 0);
  pthread_attr_t attributes;
  pthread_t thread;
  size_t lowest = 0;
  if (stack == MAP_FAILED) abort();
  memset(stack, UNTOUCHED, STACK);
  CHECK_EQ(0, pthread_attr_init(&attributes));
  CHECK_EQ(0, pthread_attr_setstack(&attributes, stack, STACK));
  CHECK_EQ(0, pthread_create(&thread, &attributes, make_call_on_stack, stack_call));
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
    struct stack_call stack_call = {&share, send.at, recv.at, nexarTimeout};
    share.operator.code = function ? created : nexarSum;
    if (job->collective->has_one_buffer) stack_call.send = stack_call.recv;
    size_t used = stack_used(&stack_call);
    CHECK_CODE(nexarSuccess, stack_call.result);
    if (used > PROMISED)
      check_failed(__FILE__, __LINE__, "%s of %zu elements by %s used %zu bytes",
                   job->collective->name, job->count, function ? "a function" : "a sum", used);
    check_guards(send);
    check_guards(recv);
  }
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(created, comm));
}

static void the_promised_stack_is_enough_for_every_collective(void) {
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
    CASE(the_promised_stack_is_enough_for_every_collective),
};

int main(void) { return RUN(cases); }
