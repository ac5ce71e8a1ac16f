/*
 * A watchdog for programs that hang. A thread counts seconds without progress; after PATIENCE_S of
 * them it prints where the program is and ends it. The total time of a program is not bounded.
 *
 * Progress is a step that a hanging program cannot repeat for ever: a case begins, a job completes,
 * a result is compared, a child starts. A check is no progress, because a loop that waits in vain
 * may contain checks; nor is the work of a background thread that runs until it is stopped.
 *
 * One sleep counts as one second however long it lasted: time in which the system does not run the
 * process does not count.
 */
#ifndef PROGRESS_H
#define PROGRESS_H

#include <pthread.h>
#include <signal.h>
#include <stdatomic.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <time.h>
#include <unistd.h>

/* Below two minutes with the 12 s that nexar-run grants the other ranks of a job. Beside four busy
   loops the longest step takes 25 s. */
enum { PATIENCE_S = 90, WITHOUT_PROGRESS = 3 /* exit code */ };

/* The first process of a test waits longer, so that it can print the output of a hanging child. */
enum { FIRST_WAITS_S = 2 };

/* Where the program is: a text of static lifetime. */
static const char *_Atomic progress_at = "the beginning";
/* Steps of this process and of the children it forks; NULL before the watch begins. */
static atomic_uint *progress_steps;

static inline void progress(void) {
  if (progress_steps) atomic_fetch_add_explicit(progress_steps, 1, memory_order_relaxed);
}

/* PATIENCE_S, or the environment variable CHECK_PATIENCE_S. */
static inline int patience_s(void) {
  const char *seconds = getenv("CHECK_PATIENCE_S");
  return seconds ? atoi(seconds) : PATIENCE_S;
}

/* Calls only write and _exit: the thread that hangs may hold the locks of stdio. */
static inline void end_without_progress(int seconds) {
  char number[12];
  size_t digit = sizeof number - 1;
  number[digit] = 0;
  do number[--digit] = (char)('0' + seconds % 10);
  while ((seconds /= 10) > 0);
  const char *parts[] = {"no progress for ", number + digit, " s in ", progress_at, "\n"};
  for (size_t i = 0; i < sizeof parts / sizeof *parts; i++)
    if (write(STDERR_FILENO, parts[i], strlen(parts[i])) < 0) break;
  _exit(WITHOUT_PROGRESS);
}

static inline void *watch_progress(void *most_s) {
  int most = *(int *)most_s;
  unsigned seen = atomic_load(progress_steps);
  for (int silent = 0; silent < most;) {
    struct timespec second = {.tv_sec = 1};
    while (nanosleep(&second, &second) != 0) continue;
    unsigned now = atomic_load(progress_steps);
    silent = now == seen ? silent + 1 : 0;
    seen = now;
  }
  end_without_progress(most);
  return NULL;
}

/* Starts the watchdog. A forked child calls it too, because threads are not inherited. */
static inline void begin_watch(void) {
  static int most_s;
  most_s = patience_s();
  if (!progress_steps) {
    most_s += FIRST_WAITS_S;
    void *shared = mmap(NULL, sizeof *progress_steps, PROT_READ | PROT_WRITE,
                        MAP_SHARED | MAP_ANONYMOUS, -1, 0);
    if (shared == MAP_FAILED) abort();
    progress_steps = shared;
  }
  progress();
  pthread_t thread;
  pthread_attr_t attributes;
  sigset_t all, before;
  sigfillset(&all);
  /* The watchdog thread handles no signal of the test. */
  pthread_sigmask(SIG_SETMASK, &all, &before);
  int failed = pthread_attr_init(&attributes) ||
               pthread_attr_setdetachstate(&attributes, PTHREAD_CREATE_DETACHED) ||
               pthread_create(&thread, &attributes, watch_progress, &most_s);
  pthread_sigmask(SIG_SETMASK, &before, NULL);
  pthread_attr_destroy(&attributes);
  if (failed) {
    fprintf(stderr, "cannot start the watchdog thread\n");
    exit(1);
  }
}

#endif
