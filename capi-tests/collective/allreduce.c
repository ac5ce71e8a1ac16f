/* nexarAllReduce against the oracle of elements.h, bit by bit on every rank. */
#define _GNU_SOURCE
#include "support/collectives.h"
#include "support/rounding.h"

static void every_count_and_number_of_ranks_gives_the_fold(void) {
  run_every_count(JOB(all_reduce, nexarFloat32));
}

static void every_operator_on_every_type_gives_the_fold(void) {
  for (int n = 2; n <= 4; n++) {
    run_every_operator(n, JOB(all_reduce, nexarInt8, .count = 37));
    run_every_operator(n, JOB(all_reduce, nexarInt8, .count = 33001)); /* another algorithm */
  }
}

static void a_rank_alone_gets_what_the_operator_says(void) {
  run_every_operator(1, JOB(all_reduce, nexarInt8, .count = 37));
}

static void large_buffers_lose_no_element(void) {
  run_job(3, JOB(all_reduce, nexarFloat32, .count = (4 << 20) + 3, .in_place = true, .shift = 1));
  run_job(3, JOB(all_reduce, nexarBfloat16, .count = 4 << 20));
  for (int n = 2; n <= 3; n++) run_job(n, JOB(all_reduce, nexarFloat32, .count = MIB_64));
}

static const struct rounding roundings[] = {
    {nexarFloat16, 1.5, 0.499755859375, 0x4000},    /* 1.9998 carries into the exponent: 2 */
    {nexarFloat16, 4, 3.998046875, 0x4800},         /* 7.998 is a tie: 8, which is even */
    {nexarFloat16, 0.25, 0.2498779296875, 0x3800},  /* 0.49988: 0.5 */
    {nexarFloat16, 2048, 1, 0x6800},                /* a tie: down to 2048 */
    {nexarFloat16, 2050, 1, 0x6802},                /* a tie: up to 2052 */
    {nexarFloat16, 0x1p-24, 0x1p-24, 0x0002},       /* subnormals are not flushed */
    {nexarFloat16, 0x1p-14, -0x1p-24, 0x03ff},
    {nexarFloat16, 65504, 8, 0x7bff},               /* the largest number */
    {nexarFloat16, 65504, 16, 0x7c00},              /* a tie with what would be 65536: infinity */
    {nexarBfloat16, 256, 1, 0x4380},                /* a tie: down to 256 */
    {nexarBfloat16, 258, 1, 0x4382},                /* a tie: up to 260, truncation gives 258 */
    {nexarBfloat16, 1, 0x1.1p-8, 0x3f81},           /* beyond the tie */
    {nexarBfloat16, 1, 0x1p-8, 0x3f80},
    {nexarBfloat16, -1, -0x1.1p-8, 0xbf81},
    {nexarFloat8e4m3, 16, 1, 0x58},                 /* a tie: down to 16 */
    {nexarFloat8e4m3, 18, 1, 0x5a},                 /* a tie: up to 20 */
    {nexarFloat8e4m3, 1.875, 0.0625, 0x40},         /* a tie that carries into the exponent: 2 */
    {nexarFloat8e4m3, 0x1p-9, 0x1p-9, 0x02},        /* subnormals */
    {nexarFloat8e4m3, 0x1p-6, -0x1p-9, 0x07},
    {nexarFloat8e4m3, 448, 448, 0x7e},              /* beyond 448: 448 */
    {nexarFloat8e4m3, -448, -32, 0xfe},
    {nexarFloat8e5m2, 8, 1, 0x48},                  /* a tie: down to 8 */
    {nexarFloat8e5m2, 10, 1, 0x4a},                 /* a tie: up to 12 */
    {nexarFloat8e5m2, 0x1p-16, 0x1p-16, 0x02},      /* subnormals */
    {nexarFloat8e5m2, 0x1p-14, -0x1p-16, 0x03},
    {nexarFloat8e5m2, 57344, 2048, 0x7b},           /* nearest is 57344 */
    {nexarFloat8e5m2, 57344, 4096, 0x7c},           /* a tie with what would be 65536: infinity */
    {nexarFloat8e5m2, -57344, -57344, 0xfc},
};

static void small_floats_are_rounded_to_nearest_even(void) { RUN_ROUNDINGS(roundings); }

/* Special values: any NaN in gives the one canonical NaN out, and -0 < +0. */
struct special {
  nexarRedOp_t op;
  double one, others, result;
};

static const struct special specials[] = {
    {nexarMax, NAN, 1, NAN},          {nexarMax, 1, NAN, NAN},
    {nexarMin, NAN, 1, NAN},          {nexarMin, 1, NAN, NAN},
    {nexarMax, -NAN, INFINITY, NAN},  {nexarMin, -NAN, -INFINITY, NAN},
    {nexarSum, NAN, 1, NAN},          {nexarSum, -NAN, 1, NAN},
    {nexarProd, -NAN, 0, NAN},        {nexarProd, INFINITY, 0, NAN},
    {nexarMax, -0.0, 0.0, 0.0},       {nexarMax, 0.0, -0.0, 0.0},
    {nexarMin, -0.0, 0.0, -0.0},      {nexarMin, 0.0, -0.0, -0.0},
    {nexarMax, -0.0, -0.0, -0.0},     {nexarMin, 0.0, 0.0, 0.0},
    {nexarSum, -0.0, -0.0, -0.0},     {nexarSum, -0.0, 0.0, 0.0},
    {nexarMax, INFINITY, 1, INFINITY}, {nexarMin, INFINITY, 1, 1},
    {nexarMax, -INFINITY, 1, 1},      {nexarMin, -INFINITY, 1, -INFINITY},
    {nexarSum, INFINITY, 1, INFINITY}, {nexarSum, INFINITY, -INFINITY, NAN},
    {nexarProd, -INFINITY, 1, -INFINITY},
};

static void put_special(const struct dtype *dtype, void *at, size_t count, double value) {
  for (size_t i = 0; i < count; i++) put_real(dtype, at, i, value);
}

static void reduce_specials(int rank, int n, nexarComm_t comm, void *arg) {
  const struct dtype *dtype = arg;
  const size_t counts[] = {1, 37, 17000}; /* the last one by the algorithm for large buffers */
  for (size_t i = 0; i < COUNT_OF(specials); i++) {
    /* float8e4m3 has no infinity. */
    bool infinite = isinf(specials[i].one) || isinf(specials[i].others);
    if (infinite && dtype->code == nexarFloat8e4m3) continue;
    for (int odd = 0; odd < n; odd++) {
      for (size_t c = 0; c < COUNT_OF(counts); c++) {
        size_t bytes = counts[c] * dtype->size;
        unsigned char *data = malloc(bytes), *expected = malloc(bytes);
        char what[60];
        snprintf(what, sizeof what, "special %zu in %s, rank %d odd", i, dtype->name, odd);
        put_special(dtype, data, counts[c], rank == odd ? specials[i].one : specials[i].others);
        put_special(dtype, expected, counts[c], specials[i].result);
        CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, counts[c], dtype->code,
                                                specials[i].op, comm, NULL));
        CHECK_SAME(expected, data, bytes, what);
        free(data);
        free(expected);
      }
    }
  }
}

static void nans_infinities_and_zeros_are_the_same_in_every_place(void) {
  for (size_t d = 0; d < COUNT_OF(dtypes); d++)
    for (int n = 2; n <= 3 && dtypes[d].kind == REAL; n++)
      run_ranks(n, reduce_specials, (void *)&dtypes[d]);
}

/* Sums that depend on the order of their terms, which must be the same on all ranks. */
static void sum_roughly(int rank, int n, nexarComm_t comm, void *arg) {
  size_t count = *(size_t *)arg;
  float *data = malloc(count * sizeof *data);
  float *all = malloc((size_t)n * count * sizeof *all);
  for (size_t i = 0; i < count; i++)
    data[i] = (float)mixed((uint64_t)rank, i) * (i % 2 ? 0x1p-40f : -0x1p-60f);
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, count, nexarFloat32, nexarSum, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarAllGather(data, all, count, nexarFloat32, comm, NULL));
  for (int r = 0; r < n; r++)
    CHECK_SAME(data, all + (size_t)r * count, count * sizeof *data, "another rank's result");
  free(data);
  free(all);
}

static void inexact_sums_have_the_same_bits_on_every_rank(void) {
  size_t counts[] = {1, 1000, 65537};
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(counts); c++) run_ranks(sizes[i], sum_roughly, &counts[c]);
}

static const struct test_case cases[] = {
    CASE(every_count_and_number_of_ranks_gives_the_fold),
    CASE(every_operator_on_every_type_gives_the_fold),
    CASE(a_rank_alone_gets_what_the_operator_says),
    CASE(large_buffers_lose_no_element),
    CASE(small_floats_are_rounded_to_nearest_even),
    CASE(nans_infinities_and_zeros_are_the_same_in_every_place),
    CASE(inexact_sums_have_the_same_bits_on_every_rank),
};

int main(void) { return RUN(cases); }
