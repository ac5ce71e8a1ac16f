/*
 * Operators that tests create: premultiplied sums with another scalar on each rank, and functions
 * that check how nexar calls them.
 */
#ifndef OPERATORS_H
#define OPERATORS_H

#include <pthread.h>

#include "elements.h"

/* Lives as long as the operator. */
struct created {
  nexarRedOp_t code;
  const struct dtype *dtype;
  combine_function *combine;
  pthread_t thread; /* the only caller of the function, unless: */
  bool by_any_thread;
  unsigned char scalar[9];
};

static inline uint64_t get_integer(const struct dtype *dtype, const void *at, size_t index) {
  uint64_t value = 0;
  copy_element(&value, (const unsigned char *)at + index * dtype->size, dtype->size);
  return wrapped(dtype, value);
}

static inline void fold_of_the_program(const void *in, void *inout, size_t count,
                                       nexarDataType_t datatype, void *user) {
  const struct created *created = user;
  const struct dtype *dtype = created->dtype;
  CHECK_EQ(dtype->code, datatype);
  CHECK_EQ(0, (uintptr_t)in % dtype->size);
  CHECK_EQ(0, (uintptr_t)inout % dtype->size);
  CHECK(created->by_any_thread || pthread_equal(created->thread, pthread_self()));
  for (size_t i = 0; i < count; i++) {
    uint64_t left = get_integer(dtype, in, i), right = get_integer(dtype, inout, i);
    put_integer(dtype, inout, i, created->combine(dtype, left, right));
  }
}

static inline void put_scalar(const struct dtype *dtype, int rank, void *at) {
  if (dtype->kind == REAL)
    put_real(dtype, at, 0, real_scalar(dtype, rank));
  else
    put_integer(dtype, at, 0, integer_scalar(dtype, rank));
}

/* The scalar is valid only while nexar reads it: in this call, or whenever the operator is used. */
static inline void create_premulsum(struct created *created, nexarScalarResidence_t residence,
                                    int rank, nexarComm_t comm) {
  bool at_once = residence == nexarScalarHostImmediate;
  void *scalar = created->scalar + 1; /* at an odd address */
  if (at_once) put_scalar(created->dtype, rank, scalar);
  CHECK_CODE(nexarSuccess, nexarRedOpCreatePreMulSum(&created->code, scalar, created->dtype->code,
                                                     residence, comm));
  if (at_once)
    memset(scalar, 0x77, created->dtype->size);
  else
    put_scalar(created->dtype, rank, scalar);
}

static inline bool is_created(const struct operator *op) {
  return op->combine || op->premultiplied;
}

/* Creates the operator for this rank and this thread, unless it is one of the header. */
static inline void create_operator(struct created *created, const struct operator *op,
                                   const struct dtype *dtype, int rank, nexarComm_t comm) {
  *created = (struct created){op->known, dtype, op->combine, pthread_self(), false, {0}};
  if (op->premultiplied) create_premulsum(created, op->residence, rank, comm);
  if (op->combine)
    CHECK_CODE(nexarSuccess, nexarRedOpCreate(&created->code, fold_of_the_program, created,
                                              op->commutative, comm));
}

static inline void destroy_operator(const struct created *created, const struct operator *op,
                                    nexarComm_t comm) {
  if (is_created(op)) CHECK_CODE(nexarSuccess, nexarRedOpDestroy(created->code, comm));
}

#endif
