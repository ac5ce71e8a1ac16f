/* What the programs that measure nexar share. */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdio.h>
#include <stdlib.h>
#include <time.h>

#include <nexar.h>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != nexarSuccess) {                                                                  \
      fprintf(stderr, "%s\n", nexarGetLastError(NULL));                                            \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static inline double now_us(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return (double)time.tv_sec * 1e6 + (double)time.tv_nsec / 1e3;
}

static inline int by_value(const void *a, const void *b) {
  double x = *(const double *)a, y = *(const double *)b;
  return (x > y) - (x < y);
}

/* Of values that it puts in order. */
static inline double median(double *values, size_t count) {
  qsort(values, count, sizeof *values, by_value);
  return values[count / 2];
}

#endif
