/*
 * The entry of every call: checks whether this thread may make it now, and returns the code if not.
 * Leaves to the file of each function what it does, and to failure.c which failures are armed.
 *
 * Invariant: a call that is refused here has no effect.
 */
#include "call.h"

#include <pthread.h>
#include <stdarg.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "context.h"
#include "engine.h"
#include "trace.h"

static const struct {
  const char *name;
  enum caller caller;
  enum needs needs;
} functions[FUNCTIONS] = {
#define X(function, caller, needs) {#function, caller, needs},
    FAKE_FUNCTIONS(X)
#undef X
};

_Thread_local struct thread this_thread;

static atomic_bool used, initialized, deinitialized, forked;
static atomic_ullong calls[FUNCTIONS];
static pthread_key_t thread_end;

void become_initialized(void) { atomic_store(&initialized, true); }
void become_deinitialized(void) { atomic_store(&deinitialized, true); }

bool driver_is_used(void) { return atomic_load(&used); }

bool is_forked_child(void) { return atomic_load(&forked); }

static void mark_forked(void) { atomic_store(&forked, true); }

static void end_of_thread(void *unused) {
  (void)unused;
  if (is_forked_child()) return;
  retire_own_streams();
  for (int i = 0; i < this_thread.pushed_by_library; i++) {
    this_thread.mine = false;
    count_object(FAKECUDA_PUSH);
  }
}

static void prepare(void) {
  atomic_store(&used, true);
  pthread_atfork(NULL, NULL, mark_forked);
  if (pthread_key_create(&thread_end, end_of_thread) != 0) die("no key for the ends of threads");
  arm_failures_of_environment();
}

static bool begins_with_one_of(const char *name, const char *list) {
  while (*list) {
    size_t length = strcspn(list, ",");
    if (length && strncmp(name, list, length) == 0) return true;
    list += length + (list[length] == ',');
  }
  return false;
}

/* A thread inherits the name of its creator until it sets its own. */
static bool has_name_of_process(const char *name) {
  char line[64] = "";
  FILE *file = fopen("/proc/self/comm", "re");
  if (!file) return false;
  if (!fgets(line, sizeof line, file)) line[0] = 0;
  fclose(file);
  line[strcspn(line, "\n")] = 0;
  return strcmp(line, name) == 0;
}

static void check_thread(enum function function) {
  char name[32] = "";
  pthread_getname_np(pthread_self(), name, sizeof name);
  if (!begins_with_one_of(name, text_setting(SETTING_FORBID_THREADS))) return;
  if (begins_with_one_of(name, text_setting(SETTING_ALLOW_THREADS))) return;
  if (gettid() == getpid() || has_name_of_process(name)) return;
  die("%s was called by the thread %s, which must make no CUDA call", functions[function].name,
      name);
}

CUresult begin_call(enum function function) {
  static pthread_once_t once = PTHREAD_ONCE_INIT;
  pthread_once(&once, prepare);
  if (this_thread.running)
    die("%s was called inside a %s", functions[function].name, this_thread.running);
  if (is_forked_child()) return CUDA_ERROR_NOT_INITIALIZED;
  if (!this_thread.known) {
    this_thread.known = true;
    pthread_setspecific(thread_end, &this_thread);
  }
  this_thread.call = functions[function].name;
  if (!this_thread.mine) {
    check_thread(function);
    atomic_fetch_add(&calls[function], 1);
    trace_call(functions[function].name);
    CUresult code;
    if (failure_is_armed(function, &code)) {
      trace_failure(functions[function].name, code);
      if (is_sticky(code)) break_context(context_to_break(), code);
      return code;
    }
  }
  if (functions[function].needs == NOTHING) return CUDA_SUCCESS;
  if (atomic_load(&deinitialized)) return CUDA_ERROR_DEINITIALIZED;
  if (!atomic_load(&initialized)) return CUDA_ERROR_NOT_INITIALIZED;
  return functions[function].needs == CONTEXT ? check_current_context() : CUDA_SUCCESS;
}

const char *name_of_function(enum function function) { return functions[function].name; }

bool library_calls(enum function function) { return functions[function].caller == BY_LIBRARY; }

const char *name_of_call(void) {
  return this_thread.call ? this_thread.call : "the end of the process";
}

_Noreturn void die(const char *format, ...) {
  char text[600], line[700];
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(text, sizeof text, format, arguments);
  va_end(arguments);
  int length = snprintf(line, sizeof line, "fake libcuda: %s\n", text);
  if (write(STDERR_FILENO, line, (size_t)length) < 0) abort();
  dump_trace_of_environment();
  abort();
}

int fakecuda_mine(int mine) {
  int before = this_thread.mine;
  this_thread.mine = mine;
  return before;
}

void fakecuda_set(const char *name, const char *value) {
  if (!change_setting(name, value)) die("there is no setting %s", name);
  if (strcmp(name, "FAIL") == 0) fakecuda_fail(value);
}

uint64_t fakecuda_calls(const char *function) {
  uint64_t sum = 0;
  for (int i = 0; i < FUNCTIONS; i++) {
    bool asked = function ? strcmp(function, functions[i].name) == 0
                          : functions[i].caller == BY_LIBRARY;
    if (asked) sum += atomic_load(&calls[i]);
  }
  return sum;
}

void fakecuda_reset_calls(void) {
  for (int i = 0; i < FUNCTIONS; i++) atomic_store(&calls[i], 0);
}
