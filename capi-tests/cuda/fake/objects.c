/*
 * Counts of live objects, of the library and of the test. Leaves the objects to the files of their
 * kinds.
 *
 * An object counts from the call that creates it to the call that releases it, whatever streams do.
 */
#include <stdatomic.h>
#include <stdio.h>

#include "call.h"
#include "context.h"

static atomic_ullong live[FAKECUDA_OBJECTS], live_of_test[FAKECUDA_OBJECTS];
static atomic_size_t pinned, most_pinned;

static const char *const names[FAKECUDA_OBJECTS] = {
    "allocations of device memory",  "allocations of pinned memory",
    "registrations of host memory",  "streams",
    "events",                        "retains of primary contexts",
    "contexts pushed and not popped",
};

bool count_object(enum fakecuda_object kind) {
  atomic_fetch_add(this_thread.mine ? &live_of_test[kind] : &live[kind], 1);
  return this_thread.mine;
}

void uncount_object(enum fakecuda_object kind, bool mine) {
  atomic_fetch_sub(mine ? &live_of_test[kind] : &live[kind], 1);
}

void count_pinned_bytes(size_t bytes) {
  if (this_thread.mine) return;
  size_t now = atomic_fetch_add(&pinned, bytes) + bytes, most = atomic_load(&most_pinned);
  while (now > most && !atomic_compare_exchange_weak(&most_pinned, &most, now)) {
  }
}

void uncount_pinned_bytes(size_t bytes, bool mine) {
  if (!mine) atomic_fetch_sub(&pinned, bytes);
}

uint64_t fakecuda_live(enum fakecuda_object kind) {
  return kind < FAKECUDA_OBJECTS ? atomic_load(&live[kind]) : 0;
}

size_t fakecuda_pinned_bytes(void) { return atomic_load(&pinned); }
size_t fakecuda_most_pinned_bytes(void) { return atomic_load(&most_pinned); }

/* In a broken context most objects cannot be released. */
static bool can_be_released(enum fakecuda_object kind) {
  return kind == FAKECUDA_RETAIN || kind == FAKECUDA_PUSH || !a_context_is_broken();
}

uint64_t fakecuda_report_leaks(void) {
  uint64_t sum = 0;
  for (enum fakecuda_object kind = 0; kind < FAKECUDA_OBJECTS; kind++) {
    uint64_t number = fakecuda_live(kind);
    if (!number || !can_be_released(kind)) continue;
    fprintf(stderr, "fake libcuda: leaked: %llu %s\n", (unsigned long long)number, names[kind]);
    sum += number;
  }
  return sum;
}
