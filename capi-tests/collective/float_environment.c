/*
 * The last rank has another floating-point environment than the others. The bits of results do not
 * depend on it, a call does not change it, and a function of the program runs in it.
 */
#define _GNU_SOURCE
#include <fenv.h>

#include "support/elements.h"
#include "support/ranks.h"

enum { FEW = 8, MANY = 100000 };

enum environment { UPWARD, DOWNWARD, TOWARDS_ZERO, WITHOUT_SUBNORMALS, ENVIRONMENTS };

static const int rounding_modes[ENVIRONMENTS] = {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO,
                                                 FE_TONEAREST};

static unsigned long control(void) {
#ifdef __aarch64__
  unsigned long fpcr;
  __asm__ volatile("mrs %0, fpcr" : "=r"(fpcr));
  return fpcr;
#else
  return __builtin_ia32_stmxcsr() & 0xffc0; /* without the flags of exceptions */
#endif
}

static void flush_subnormals(void) {
#ifdef __aarch64__
  __asm__ volatile("msr fpcr, %0" : : "r"(control() | 1ul << 24));
#else
  __builtin_ia32_ldmxcsr((unsigned)control() | 0x8040);
#endif
}

static void enter(enum environment environment) {
  CHECK_EQ(0, fesetround(rounding_modes[environment]));
  if (environment == WITHOUT_SUBNORMALS) flush_subnormals();
}

static const nexarDataType_t types[] = {nexarFloat32,  nexarFloat64,    nexarFloat16,
                                        nexarBfloat16, nexarFloat8e4m3, nexarFloat8e5m2};

/* Pseudorandom bits. Every second element has a zero exponent, as a subnormal number. */
static void fill_with_bits(unsigned char *data, size_t count, size_t size, uint32_t seed) {
  for (size_t i = 0; i < count * size; i++) {
    seed = seed * 1664525 + 1013904223;
    bool of_exponent = i % size == size - 1 || (size > 1 && i % size == size - 2);
    data[i] = i / size % 2 == 1 && of_exponent ? 0 : (unsigned char)(seed >> 24);
    if (size == 1 && i % 2 == 1) data[i] = (unsigned char)(seed >> 24 & 3);
  }
}

static unsigned char sent[2][MANY * 8];

static void reduce(size_t count, nexarDataType_t type, nexarRedOp_t op, nexarComm_t comm, int rank,
                   nexarStream_t stream, unsigned char *result) {
  CHECK_CODE(nexarSuccess,
             nexarAllReduce(sent[rank], result, count, type, op, comm, stream));
  if (stream) CHECK_CODE(nexarSuccess, nexarStreamSynchronize(stream));
}

/* Reduces in that environment, on the calling thread and on the thread of a stream. */
static void reduce_in(enum environment environment, size_t count, const struct dtype *dtype,
                      nexarRedOp_t op, nexarComm_t comm, int rank, const unsigned char *expected) {
  size_t bytes = count * dtype->size;
  unsigned char *result = calloc(2, bytes);
  nexarStream_t stream = NULL;
  fenv_t before;
  CHECK_EQ(0, fegetenv(&before));
  if (rank == 1) enter(environment);
  unsigned long entered = control();
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  reduce(count, dtype->code, op, comm, rank, NULL, result);
  reduce(count, dtype->code, op, comm, rank, stream, result + bytes);
  unsigned long left = control();
  CHECK_EQ(0, fesetenv(&before));
  CHECK_EQ(entered, left);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
  char what[100];
  snprintf(what, sizeof what, "%zu %s, operator %d, environment %d", count, dtype->name, (int)op,
           (int)environment);
  CHECK_SAME(expected, result, bytes, what);
  CHECK_SAME(expected, result + bytes, bytes, what);
  free(result);
}

static void reduce_in_every_environment(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n;
  size_t count = *(const size_t *)arg;
  unsigned char *expected = malloc(count * 8);
  for (size_t t = 0; t < COUNT_OF(types); t++) {
    const struct dtype *dtype = dtype_of(types[t]);
    uint64_t scalar = 0x3939393939393939 >> (64 - 8 * dtype->size); /* a number below 1 */
    nexarRedOp_t premultiplied;
    CHECK_CODE(nexarSuccess, nexarRedOpCreatePreMulSum(&premultiplied, &scalar, dtype->code,
                                                       nexarScalarHostImmediate, comm));
    nexarRedOp_t all[] = {nexarSum, nexarProd, nexarMax, nexarMin, nexarAvg, premultiplied};
    fill_with_bits(sent[rank], count, dtype->size, (uint32_t)(rank + 1));
    for (size_t o = 0; o < COUNT_OF(all); o++) {
      reduce(count, dtype->code, all[o], comm, rank, NULL, expected);
      for (int environment = 0; environment < ENVIRONMENTS; environment++)
        reduce_in((enum environment)environment, count, dtype, all[o], comm, rank, expected);
    }
    CHECK_CODE(nexarSuccess, nexarRedOpDestroy(premultiplied, comm));
  }
  free(expected);
}

static void the_environment_of_one_rank_changes_no_bit_of_few_elements(void) {
  size_t count = FEW;
  run_ranks(2, reduce_in_every_environment, &count);
}

static void the_environment_of_one_rank_changes_no_bit_of_many_elements(void) {
  size_t count = MANY;
  run_ranks(2, reduce_in_every_environment, &count);
}

/* Adds bits as integers. Stores its floating-point environment in `user`. */
static void add_bits(const void *in, void *inout, size_t count, nexarDataType_t datatype,
                     void *user) {
  (void)datatype;
  const uint32_t *left = in;
  uint32_t *right = inout;
  for (size_t i = 0; i < count; i++) right[i] += left[i];
  *(unsigned long *)user = control();
}

static void reduce_by_a_function(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  (void)n;
  static const size_t counts[] = {FEW, MANY};
  unsigned long seen = 0;
  nexarRedOp_t op;
  CHECK_CODE(nexarSuccess, nexarRedOpCreate(&op, add_bits, &seen, 1, comm));
  fill_with_bits(sent[rank], MANY, 4, (uint32_t)(rank + 1));
  unsigned char *result = malloc(MANY * 4);
  for (size_t i = 0; i < COUNT_OF(counts); i++) {
    fenv_t before;
    CHECK_EQ(0, fegetenv(&before));
    enter(rank == 1 ? UPWARD : WITHOUT_SUBNORMALS);
    seen = 0;
    reduce(counts[i], nexarFloat32, op, comm, rank, NULL, result);
    unsigned long own = control();
    CHECK_EQ(0, fesetenv(&before));
    /* 0: the function did not run on this rank. */
    if (seen != 0) CHECK_EQ(own, seen);
    unsigned long folds = seen != 0;
    CHECK_CODE(nexarSuccess,
               nexarAllReduce(&folds, &folds, 1, nexarUint64, nexarSum, comm, NULL));
    CHECK(folds > 0);
  }
  free(result);
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(op, comm));
}

static void a_function_of_the_program_sees_its_own_environment(void) {
  run_ranks(2, reduce_by_a_function, NULL);
}

static const struct test_case cases[] = {
    CASE(the_environment_of_one_rank_changes_no_bit_of_few_elements),
    CASE(the_environment_of_one_rank_changes_no_bit_of_many_elements),
    CASE(a_function_of_the_program_sees_its_own_environment),
};

int main(void) { return RUN(cases); }
