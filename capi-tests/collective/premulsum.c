/* nexarRedOpCreatePreMulSum: sums of each rank's elements times its scalar, in every reduction. */
#define _GNU_SOURCE
#include "support/collectives.h"

static const nexarScalarResidence_t residences[] = {nexarScalarDevice, nexarScalarHostImmediate};

static void premultiply_in_every_collective(int n, size_t count) {
  for (size_t c = 0; c < COUNT_OF(folding); c++)
    for (size_t d = 0; d < COUNT_OF(dtypes); d++)
      for (size_t r = 0; r < COUNT_OF(residences); r++)
        run_job(n, (struct job){.collective = folding[c], .dtype = &dtypes[d],
                                .op = {.premultiplied = true, .residence = residences[r]},
                                .count = count, .buffers = 3, .root = (int)d % n,
                                .in_place = r ^ d % 2, .shift = d % 3});
}

static void every_type_is_multiplied_by_the_scalar_of_its_rank_in_every_collective(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) premultiply_in_every_collective(sizes[i], 37);
}

static void many_elements_are_multiplied_too(void) { premultiply_in_every_collective(3, 33001); }

static void large_buffers_lose_no_element(void) {
  for (size_t c = 0; c < COUNT_OF(folding); c++)
    run_job(2, (struct job){.collective = folding[c], .dtype = dtype_of(nexarFloat32),
                            .op = {.premultiplied = true}, .count = (1 << 20) + 3, .buffers = 3});
  run_job(2, JOB(all_reduce, nexarFloat32, .op.premultiplied = true, .count = MIB_64));
}

/* An immediate scalar is read at creation, a resident one at every use. */
static void change_the_scalar(int rank, int n, nexarComm_t comm, void *arg) {
  nexarScalarResidence_t residence = *(const nexarScalarResidence_t *)arg;
  bool at_once = residence == nexarScalarHostImmediate;
  double scalar = 1;
  nexarRedOp_t op;
  CHECK_CODE(nexarSuccess,
             nexarRedOpCreatePreMulSum(&op, &scalar, nexarFloat64, residence, comm));
  for (int use = 1; use <= 4; use++) {
    double data = rank + 1, sum = n * (n + 1) / 2;
    scalar = use;
    CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 1, nexarFloat64, op, comm, NULL));
    CHECK(data == (at_once ? sum : use * sum));
  }
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(op, comm));
}

static void a_resident_scalar_is_read_at_every_use_and_an_immediate_one_once(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t r = 0; r < COUNT_OF(residences); r++)
      run_ranks(sizes[i], change_the_scalar, (void *)&residences[r]);
}

/* The residence of the scalar differs between ranks. */
static void mix_the_residences(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int32_t scalar = rank + 1, data = 10, expected = 0;
  nexarRedOp_t op;
  CHECK_CODE(nexarSuccess,
             nexarRedOpCreatePreMulSum(&op, &scalar, nexarInt32, residences[rank % 2], comm));
  CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 1, nexarInt32, op, comm, NULL));
  for (int r = 0; r < n; r++) expected += 10 * (r + 1);
  CHECK_EQ(expected, data);
  CHECK_CODE(nexarSuccess, nexarRedOpDestroy(op, comm));
}

static void ranks_may_keep_their_scalars_in_different_places(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], mix_the_residences, NULL);
}

static const struct test_case cases[] = {
    CASE(every_type_is_multiplied_by_the_scalar_of_its_rank_in_every_collective),
    CASE(many_elements_are_multiplied_too),
    CASE(large_buffers_lose_no_element),
    CASE(a_resident_scalar_is_read_at_every_use_and_an_immediate_one_once),
    CASE(ranks_may_keep_their_scalars_in_different_places),
};

int main(void) { return RUN(cases); }
