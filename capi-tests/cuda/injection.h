/*
 * Failures at a chosen call of the driver: lists the calls, makes one fail, and checks the error.
 * Leaves the operations and their expected outcome to the tests.
 */
#ifndef INJECTION_H
#define INJECTION_H

#include <sys/mman.h>

#include "device_rank.h"

enum {
  MOST_CALLS = 400,
  MOST_LEAKED = 1 << 30, /* bytes of pinned memory, at which runs stop */
};

/* Codes that do not break a device; 12345 is unknown to the driver. */
static const unsigned codes[] = {1, 999, 12345, 2};

/* The number of runs, including those of child processes. */
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

/* Lists the calls since begin_to_list. */
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

/* The library polls a stream until it is idle. From now on the driver answers a query only when the
   stream can make no more progress, so the number of calls does not depend on timing. */
static inline void count_queries_once(void) { setenv("FAKECUDA_SETTLE", "1", 1); }

/* Makes the nth call from now fail, and with plus "+" all later ones too. */
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

/* The error of a call of nexar names the function of the driver that failed, and its code. */
static inline void check_error_names(const char *function, unsigned code, nexarResult_t result,
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

/* Runs go on until many checks have failed, or too much memory has leaked for the host. */
static inline bool can_go_on(void) {
  CHECK(fakecuda_pinned_bytes() < MOST_LEAKED);
  return check_failures < 20 && fakecuda_pinned_bytes() < MOST_LEAKED;
}

/* Objects of the driver that the library owns. */
struct driver_objects {
  uint64_t of[FAKECUDA_OBJECTS];
};

static inline struct driver_objects driver_objects(void) {
  struct driver_objects now;
  for (int kind = 0; kind < FAKECUDA_OBJECTS; kind++) now.of[kind] = fakecuda_live(kind);
  return now;
}

static inline void check_no_leak(struct driver_objects before, const char *when) {
  static const char *const names[] = {"device memory", "pinned memory", "registered memory",
                                      "streams",       "events",        "retained contexts",
                                      "pushed contexts"};
  struct driver_objects now = driver_objects();
  for (int kind = 0; kind < FAKECUDA_PUSH; kind++)
    if (now.of[kind] != before.of[kind])
      check_failed(__FILE__, __LINE__, "after %s there is %llu more %s", when,
                   (unsigned long long)(now.of[kind] - before.of[kind]), names[kind]);
}

#endif
