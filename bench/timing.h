/* The clock and the median of the programs that measure. C and C++. */
#ifndef TIMING_H
#define TIMING_H

#include <stdlib.h>
#include <time.h>

static inline double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static inline int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Returns the median of the values, which it sorts. */
static inline double median(double *values, size_t count) {
  qsort(values, count, sizeof *values, by_value);
  return values[count / 2];
}

#endif
