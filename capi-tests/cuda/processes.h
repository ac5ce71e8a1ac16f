/*
 * Cases that run in a process of their own: each has its own driver settings, may die, and leaves
 * nothing behind.
 */
#ifndef PROCESSES_H
#define PROCESSES_H

#include <sys/wait.h>

#include "support/check.h"

struct ended {
  int status;
  char stderr_text[4000];
};

/* Sets FAKECUDA_<name> for each name in text like "HWQ=1 SEED=2". */
static inline void put_settings(const char *settings) {
  char copy[1000], *rest = copy;
  snprintf(copy, sizeof copy, "%s", settings);
  for (char *word; (word = strtok_r(rest, " ", &rest));) {
    char name[100] = "FAKECUDA_", *value = strchr(word, '=');
    *value++ = 0;
    strncat(name, word, 80);
    setenv(name, value, 1);
  }
}

/* Keeps the first part of the text. Reads the rest too, so that the writer never blocks. */
static inline void read_to_end(int file, char *text, size_t size) {
  char part[1000];
  size_t length = 0;
  for (ssize_t got; (got = read(file, part, sizeof part)) > 0;) {
    size_t kept = (size_t)got < size - 1 - length ? (size_t)got : size - 1 - length;
    memcpy(text + length, part, kept);
    length += kept;
  }
  text[length] = 0;
}

/* Runs the function in a child process, whose status is 0 if no check failed, and waits for it. */
static inline struct ended run_child(const char *settings, void (*function)(void)) {
  struct ended ended = {.status = -1};
  int pipe_ends[2];
  CHECK_EQ(0, pipe(pipe_ends));
  pid_t child = fork();
  if (child == 0) {
    dup2(pipe_ends[1], STDERR_FILENO);
    close(pipe_ends[0]);
    close(pipe_ends[1]);
    begin_watch();
    put_settings(settings);
    check_failures = 0;
    function();
    exit(check_failures != 0);
  }
  close(pipe_ends[1]);
  read_to_end(pipe_ends[0], ended.stderr_text, sizeof ended.stderr_text);
  close(pipe_ends[0]);
  CHECK(child > 0 && waitpid(child, &ended.status, 0) == child);
  return ended;
}

static inline void in_a_process(const char *settings, void (*function)(void)) {
  struct ended ended = run_child(settings, function);
  CHECK_EQ(0, ended.status);
  if (ended.status != 0) fprintf(stderr, "with %s: %s", settings, ended.stderr_text);
}

/* The child process ends by the signal, and has written the text to stderr. */
static inline void dies(const char *settings, void (*function)(void), int signal,
                        const char *text) {
  struct ended ended = run_child(settings, function);
  CHECK(WIFSIGNALED(ended.status));
  CHECK_EQ(signal, WTERMSIG(ended.status));
  CHECK_TEXT(ended.stderr_text, text);
}

#endif
