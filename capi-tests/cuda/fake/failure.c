/*
 * Injected failures: which call of which function returns which code. Leaves to call.c the caller
 * of a function, and the effect of a code on its context.
 *
 * Each failure counts the library's calls that match it, from the time when it was armed.
 */
#include "call.h"

#include <pthread.h>
#include <stdio.h>
#include <string.h>

enum { MOST_FAILURES = 32 };

static struct failure {
  char function[64];
  unsigned long nth, counted;
  bool and_all_after;
  CUresult code;
} failures[MOST_FAILURES];
static int armed;
static unsigned fired;
static enum function last_failed; /* valid if `fired` */
static bool chosen; /* whether the test has replaced the failures of the environment */
static pthread_mutex_t lock = PTHREAD_MUTEX_INITIALIZER;

/* function:nth:code, or function:nth+:code for the nth and all later calls. */
static bool parse(const char *text, struct failure *failure) {
  char plus = 0;
  *failure = (struct failure){.nth = 0};
  if (sscanf(text, "%63[^:]:%lu:%u", failure->function, &failure->nth, &failure->code) == 3)
    return failure->nth > 0;
  failure->and_all_after = true;
  return sscanf(text, "%63[^:]:%lu%c:%u", failure->function, &failure->nth, &plus,
                &failure->code) == 4 &&
         plus == '+' && failure->nth > 0;
}

static void check_function(const char *name) {
  if (strcmp(name, "*") == 0) return;
  for (int i = 0; i < FUNCTIONS; i++)
    if (strcmp(name, name_of_function(i)) == 0) return;
  die("FAKECUDA_FAIL names %s, which is no function", name);
}

/* With the lock. */
static void arm(const char *text) {
  armed = 0;
  fired = 0;
  while (text && *text) {
    if (armed == MOST_FAILURES) die("FAKECUDA_FAIL has more than %d failures", MOST_FAILURES);
    if (!parse(text, &failures[armed])) die("FAKECUDA_FAIL is not function:nth:code: %s", text);
    check_function(failures[armed++].function);
    text += strcspn(text, ",");
    text += *text == ',';
  }
}

void fakecuda_fail(const char *text) {
  pthread_mutex_lock(&lock);
  arm(text);
  chosen = true;
  pthread_mutex_unlock(&lock);
}

void arm_failures_of_environment(void) {
  pthread_mutex_lock(&lock);
  if (!chosen) arm(text_setting(SETTING_FAIL));
  pthread_mutex_unlock(&lock);
}

unsigned fakecuda_failed(void) {
  pthread_mutex_lock(&lock);
  unsigned number = fired;
  pthread_mutex_unlock(&lock);
  return number;
}

const char *fakecuda_failed_function(void) {
  pthread_mutex_lock(&lock);
  const char *name = fired ? name_of_function(last_failed) : NULL;
  pthread_mutex_unlock(&lock);
  return name;
}

static bool matches(const struct failure *failure, enum function function) {
  if (strcmp(failure->function, "*") == 0) return library_calls(function);
  return strcmp(failure->function, name_of_function(function)) == 0;
}

bool failure_is_armed(enum function function, CUresult *code) {
  bool fails = false;
  pthread_mutex_lock(&lock);
  for (int i = 0; i < armed; i++) {
    struct failure *failure = &failures[i];
    if (!matches(failure, function)) continue;
    failure->counted++;
    if (fails || failure->counted < failure->nth) continue;
    if (failure->counted > failure->nth && !failure->and_all_after) continue;
    *code = failure->code;
    fails = true;
    fired++;
    last_failed = function;
  }
  pthread_mutex_unlock(&lock);
  return fails;
}
