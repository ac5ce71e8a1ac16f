/* Shared by the programs that measure nexar. */
#ifndef MEASURE_H
#define MEASURE_H

#include <stdio.h>
#include <stdlib.h>

#include <nexar.h>

#include "timing.h"

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != nexarSuccess) {                                                                  \
      fprintf(stderr, "%s\n", nexarGetLastError(NULL));                                            \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

#endif
