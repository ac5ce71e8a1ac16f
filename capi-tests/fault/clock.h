/* Times that all processes of a host can compare. */
#ifndef CLOCK_H
#define CLOCK_H

#include <time.h>

static inline long long now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

#endif
