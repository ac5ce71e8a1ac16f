/*
 * Checks, and the table of cases of a test program:
 *
 *     static void zero_is_even(void) { CHECK_EQ(0, 0 % 2); }
 *
 *     static const struct test_case cases[] = {CASE(zero_is_even)};
 *     int main(void) { return RUN(cases); }
 *
 * A failed check is printed and counted, and its case goes on. Any thread may check. With
 * CHECK_CASES in the environment only cases whose names begin with its value run. A watchdog ends a
 * program that hangs and prints the case: see progress.h.
 */
#ifndef CHECK_H
#define CHECK_H

#include <limits.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nexar.h>

#include "progress.h"

struct test_case {
  const char *name;
  void (*run)(void);
};

#define CASE(function) {#function, function}
#define COUNT_OF(array) (sizeof(array) / sizeof((array)[0]))
#define RUN(cases) run_cases(cases, COUNT_OF(cases))

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) check_failed(__FILE__, __LINE__, "%s is false", #condition);                 \
  } while (0)

#define CHECK_EQ(expected, actual)                                                                 \
  do {                                                                                             \
    long long expected_ = (long long)(expected), actual_ = (long long)(actual);                    \
    if (expected_ != actual_)                                                                      \
      check_failed(__FILE__, __LINE__, "%s is %lld, not %lld", #actual, actual_, expected_);       \
  } while (0)

#define CHECK_CODE(expected, call)                                                                 \
  do {                                                                                             \
    nexarResult_t expected_ = (expected), actual_ = (call);                                        \
    if (expected_ != actual_)                                                                      \
      check_failed(__FILE__, __LINE__, "%s returned %d (%s), not %d (%s)", #call, (int)actual_,    \
                   nexarGetErrorString(actual_), (int)expected_, nexarGetErrorString(expected_));  \
  } while (0)

#define CHECK_TEXT(text, part)                                                                     \
  do {                                                                                             \
    const char *text_ = (text), *part_ = (part);                                                   \
    if (!strstr(text_, part_))                                                                     \
      check_failed(__FILE__, __LINE__, "%s is \"%s\", without \"%s\"", #text, text_, part_);       \
  } while (0)

/*
 * The operation took less than `gives_up_s`, after which its waits time out. With CHECK_TIMES in
 * the environment (`make fault`) it must have taken less than `promised_s`, which only an idle
 * machine can keep.
 */
#define CHECK_TIME(promised_s, gives_up_s, took_s)                                                 \
  do {                                                                                             \
    double took_ = (took_s), most_ = getenv("CHECK_TIMES") ? (promised_s) : (gives_up_s);          \
    if (took_ >= most_)                                                                            \
      check_failed(__FILE__, __LINE__, "%s: %.3f s, not less than %.3f", #took_s, took_, most_);   \
  } while (0)

static atomic_int check_failures;
/* Parts of a case that ran, and parts that cannot run here. If none ran, the case is skipped. */
static int check_parts, check_parts_skipped;

static inline void check_failed(const char *file, int line, const char *format, ...) {
  char what[1000];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(what, sizeof what, format, arguments);
  va_end(arguments);
  /* A check inside a long loop must not bury the first failures. */
  if (atomic_fetch_add(&check_failures, 1) < 20)
    fprintf(stderr, "%s:%d: %s\n    last error: %s\n", file, line, what, nexarGetLastError(NULL));
}

static inline double seconds_now(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec + (double)time.tv_nsec / 1e9;
}

static inline int run_cases(const struct test_case *cases, size_t count) {
  int failed = 0, chosen = 0;
  const char *beginning = getenv("CHECK_CASES");
  begin_watch();
  for (size_t i = 0; i < count; i++) {
    if (beginning && strncmp(cases[i].name, beginning, strlen(beginning)) != 0) continue;
    chosen++;
    progress_at = cases[i].name;
    progress();
    int before = check_failures;
    check_parts = check_parts_skipped = 0;
    cases[i].run();
    bool ok = check_failures == before, skipped = check_parts_skipped && !check_parts;
    failed += !ok;
    printf("%s %s\n", !ok ? "FAILED" : skipped ? "skipped" : "ok", cases[i].name);
    fflush(stdout); /* a child of a later case must not print these lines again */
  }
  progress_at = "the end";
  progress();
  if (!chosen) fprintf(stderr, "no case begins with %s\n", beginning);
  return failed != 0 || !chosen;
}

#endif
