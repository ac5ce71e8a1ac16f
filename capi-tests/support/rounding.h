/*
 * Sums of two elements that are rounded: two operands and the bits of their sum, at every index of
 * arrays of many lengths, because vector loops and their remainders must agree.
 */
#ifndef ROUNDING_H
#define ROUNDING_H

#include "elements.h"
#include "ranks.h"

struct rounding {
  nexarDataType_t datatype;
  double one, other;
  uint64_t sum;
};

static inline void add_and_round(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n;
  const struct rounding *rounding = arg;
  const struct dtype *dtype = dtype_of(rounding->datatype);
  for (size_t count = 1; count <= 70; count++) {
    unsigned char data[70 * 8], expected[70 * 8];
    char what[100];
    snprintf(what, sizeof what, "%g + %g in %s", rounding->one, rounding->other, dtype->name);
    for (size_t i = 0; i < count; i++) {
      put_real(dtype, data, i, rank == 0 ? rounding->one : rounding->other);
      put_integer(dtype, expected, i, rounding->sum);
    }
    CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, count, dtype->code, nexarSum, comm, NULL));
    CHECK_SAME(expected, data, count * dtype->size, what);
  }
}

#define RUN_ROUNDINGS(roundings)                                                                   \
  for (size_t i_ = 0; i_ < COUNT_OF(roundings); i_++)                                              \
  run_ranks(2, add_and_round, (void *)&(roundings)[i_])

#endif
