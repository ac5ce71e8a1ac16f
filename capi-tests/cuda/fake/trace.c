/*
 * The trace: a ring of the last events, and its text. Leaves to call.c and engine.c which events
 * are recorded.
 *
 * Recording takes no lock: an atomic addition reserves the entry of an event, and its mark is set
 * when it is complete. The text omits events that are being written.
 *
 * A line is: microseconds, what, stream, kind or function, bytes, value.
 *     12.3 call - cuMemcpyAsync 0 0
 *     14.0 begin 2 D2H 4096 0
 */
#include "trace.h"

#include <stdatomic.h>
#include <stdio.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include "control.h"
#include "settings.h"

enum { EVENTS = 1 << 16 };

struct event {
  atomic_ullong mark; /* the event's number, from 1, when it is complete; else 0 */
  struct timespec time;
  const char *what, *name;
  int64_t stream;
  size_t bytes;
  uint32_t value;
};

static struct event ring[EVENTS];
static atomic_ullong written, forgotten;

static void add(const char *what, int64_t stream, const char *name, size_t bytes, uint32_t value) {
  unsigned long long number = atomic_fetch_add(&written, 1);
  struct event *event = &ring[number % EVENTS];
  atomic_store(&event->mark, 0);
  clock_gettime(CLOCK_MONOTONIC, &event->time);
  event->what = what;
  event->stream = stream;
  event->name = name;
  event->bytes = bytes;
  event->value = value;
  atomic_store(&event->mark, number + 1);
}

void trace_call(const char *function) { add("call", -1, function, 0, 0); }

void trace_failure(const char *function, CUresult code) { add("fail", -1, function, 0, code); }

void trace_operation(const char *begin_or_end, int64_t stream, const char *kind, size_t bytes,
                     uint32_t value) {
  add(begin_or_end, stream, kind, bytes, value);
}

static void print(FILE *file, const struct event *event) {
  char stream[24] = "-";
  if (event->stream >= 0) snprintf(stream, sizeof stream, "%lld", (long long)event->stream);
  double time = (double)event->time.tv_sec * 1e6 + (double)event->time.tv_nsec / 1e3;
  fprintf(file, "%.1f %s %s %s %zu %u\n", time, event->what, stream, event->name, event->bytes,
          event->value);
}

static int write_ring(FILE *file) {
  unsigned long long end = atomic_load(&written), begin = atomic_load(&forgotten);
  if (end - begin > EVENTS) {
    fprintf(file, "# %llu events before these are lost\n", end - begin - EVENTS);
    begin = end - EVENTS;
  }
  for (unsigned long long number = begin; number < end; number++) {
    const struct event *event = &ring[number % EVENTS];
    if (atomic_load(&event->mark) == number + 1) print(file, event);
  }
  return fclose(file);
}

int fakecuda_dump_trace(const char *path) {
  FILE *file = fopen(path, "we");
  if (!file || write_ring(file) != 0) return -1;
  fakecuda_reset_trace();
  return 0;
}

void fakecuda_reset_trace(void) { atomic_store(&forgotten, atomic_load(&written)); }

/* "%p" in the name stands for the process id, because several processes write traces. */
void dump_trace_of_environment(void) {
  const char *name = text_setting(SETTING_TRACE), *process = strstr(name, "%p");
  char path[4096];
  if (!*name) return;
  if (process)
    snprintf(path, sizeof path, "%.*s%d%s", (int)(process - name), name, (int)getpid(),
             process + 2);
  else
    snprintf(path, sizeof path, "%s", name);
  fakecuda_dump_trace(path);
}
