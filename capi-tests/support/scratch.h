/* Files that a test writes and reads again: in memory, so that nothing is left of them. */
#ifndef SCRATCH_H
#define SCRATCH_H

#include <sys/mman.h>

#include "check.h"

enum { SCRATCH_PATH = 64 };

/* A new file, empty, to be read from its beginning. Under the path, until it is closed here, this
   process and its children can open it to write. */
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
