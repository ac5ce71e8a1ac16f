/*
 * Failures at a chosen call of the driver: which calls there are, which one fails, and what must be
 * told of it. What is called, and what must come of it, is left to the tests.
 */
#ifndef INJECTION_H
#define INJECTION_H

#include <sys/mman.h>

#include "device_rank.h"

enum {
  MOST_CALLS = 400,
  TOO_MUCH_PINNED = 1 << 30, /* whoever has so much after a run has lost it */
};

/* Codes that leave a device as it is, also one that nobody knows. */
static const unsigned codes[] = {1, 999, 12345, 2};

/* How many runs there were, also in children. */
static inline atomic_int *runs(void) {
  static atomic_int *shared;
  if (!shared) {
    void *memory = mmap(NULL, sizeof *shared, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_ANONYMOUS,
                        -1, 0);
    if (memory == MAP_FAILED) abort();
    shared = memory;
  }
  return shared;
}

/* The functions of the driver that the library has called, in order. */
struct driver_calls {
  unsigned count;
  char names[MOST_CALLS][48];
};

static inline void begin_to_list(void) {
  fakecuda_reset_calls();
  fakecuda_reset_trace();
}

/* Those since then. */
static inline void list_calls(struct driver_calls *calls) {
  char line[300];
  uint64_t counted = fakecuda_calls(NULL);
  FILE *file = read_trace();
  calls->count = 0;
  while (fgets(line, sizeof line, file))
    if (calls->count < MOST_CALLS &&
        sscanf(line, "%*s call - %47s", calls->names[calls->count]) == 1)
      calls->count++;
  fclose(file);
  CHECK_EQ(counted, calls->count);
  CHECK(calls->count > 0 && calls->count < MOST_CALLS);
}

static inline const char *call_name(const struct driver_calls *calls, unsigned nth) {
  return calls->names[nth - 1];
}

static inline bool is_call(const struct driver_calls *calls, unsigned nth, const char *name) {
  return strcmp(call_name(calls, nth), name) == 0;
}

/* The library asks a stream until it has come so far. From now on the driver answers when the stream
   can go on no further, so that how many calls there are does not depend on timing. */
static inline void count_questions_once(void) { setenv("FAKECUDA_SETTLE", "1", 1); }

/* Has the nth call from now fail, and with plus "+" all after it. */
static inline void arm(unsigned nth, const char *plus, unsigned code) {
  char failure[40];
  snprintf(failure, sizeof failure, "*:%u%s:%u", nth, plus, code);
  fakecuda_fail(failure);
}

static inline void begin_run(const char *name, const struct driver_calls *calls, unsigned nth,
                             const char *plus, unsigned code) {
  static char what[200];
  snprintf(what, sizeof what, "%s, call %u (%s) of %u, code %u%s", name, nth, call_name(calls, nth),
           calls->count, code, plus);
  progress_at = what;
  atomic_fetch_add(runs(), 1);
  progress();
}

/* The error of a call that the failure of this function has ended. */
static inline void check_told(const char *function, unsigned code, nexarResult_t result,
                              nexarComm_t comm) {
  char number[12], text[1000];
  snprintf(text, sizeof text, "%s", nexarGetLastError(comm));
  snprintf(number, sizeof number, "%u", code);
  CHECK_CODE(nexarUnhandledCudaError, result);
  CHECK_TEXT(text, function);
  CHECK_TEXT(text, number);
}

/* The stack of contexts is as it was, unless one could not be popped. */
static inline void restore_contexts(unsigned depth, bool some_may_be_left) {
  if (!some_may_be_left) CHECK_EQ(depth, fakecuda_context_depth());
  while (fakecuda_context_depth() > depth) OK(cuCtxPopCurrent_v2(NULL));
}

/* Runs go on until enough has failed, or so much is lost that the host would suffer. */
static inline bool can_go_on(void) {
  CHECK(fakecuda_pinned_bytes() < TOO_MUCH_PINNED);
  return check_failures < 20 && fakecuda_pinned_bytes() < TOO_MUCH_PINNED;
}

/* What the library has of the driver. */
struct belongings {
  uint64_t of[FAKECUDA_OBJECTS];
};

static inline struct belongings belongings(void) {
  struct belongings now;
  for (int kind = 0; kind < FAKECUDA_OBJECTS; kind++) now.of[kind] = fakecuda_live(kind);
  return now;
}

static inline void check_given_back(struct belongings before, const char *when) {
  static const char *const names[] = {"device memory", "pinned memory", "registered memory",
                                      "streams",       "events",        "retained contexts",
                                      "pushed contexts"};
  struct belongings now = belongings();
  for (int kind = 0; kind < FAKECUDA_PUSH; kind++)
    if (now.of[kind] != before.of[kind])
      check_failed(__FILE__, __LINE__, "after %s there is %llu more %s", when,
                   (unsigned long long)(now.of[kind] - before.of[kind]), names[kind]);
}

#endif
