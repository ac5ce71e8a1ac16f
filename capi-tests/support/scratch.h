/* Temporary files in memory, of which nothing remains after a crash. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <sys/mman.h>

#include "check.h"

enum { SCRATCH_PATH = 64 };

/* Returns a new, empty file that reads from its beginning. Until it is closed, this process and its
   children can open `path` to write. */
static inline FILE *scratch_file(char path[SCRATCH_PATH]) {
  int descriptor = memfd_create("scratch", MFD_CLOEXEC);
  FILE *file = descriptor < 0 ? NULL : fdopen(descriptor, "r");
  if (!file) {
    perror("a file in memory");
    abort();
  }
  snprintf(path, SCRATCH_PATH, "/proc/%d/fd/%d", (int)getpid(), descriptor);
  return file;
}

#endif
