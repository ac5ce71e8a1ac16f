/*
 * Use case: scan and exclusive scan, in place and element by element. Rank i receives x0 op ... op
 * xi, or without its own xi in an exclusive scan, where rank 0 receives the identity.
 */
#define _GNU_SOURCE
#include <float.h>
#include <math.h>

#include "support/elements.h"
#include "support/ranks.h"

static void scan_in_place(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int32_t sum[3] = {rank + 1, 10 * (rank + 1), -rank};
  double product[1] = {2};
  int64_t least[2] = {100 - rank, rank};
  uint8_t most[2] = {(uint8_t)(200 + rank), (uint8_t)(200 - rank)};
  CHECK_CODE(nexarSuccess, nexarScan(sum, sum, 3, nexarInt32, nexarSum, comm, NULL));
  CHECK_EQ((rank + 1) * (rank + 2) / 2, sum[0]);
  CHECK_EQ(10 * (rank + 1) * (rank + 2) / 2, sum[1]);
  CHECK_EQ(-rank * (rank + 1) / 2, sum[2]);
  CHECK_CODE(nexarSuccess, nexarScan(product, product, 1, nexarFloat64, nexarProd, comm, NULL));
  CHECK(product[0] == pow(2, rank + 1));
  CHECK_CODE(nexarSuccess, nexarScan(least, least, 2, nexarInt64, nexarMin, comm, NULL));
  CHECK(least[0] == 100 - rank && least[1] == 0);
  CHECK_CODE(nexarSuccess, nexarScan(most, most, 2, nexarUint8, nexarMax, comm, NULL));
  CHECK(most[0] == 200 + rank && most[1] == 200);
  check_it_works(rank, n, comm);
}

static void rank_i_receives_the_reduction_over_ranks_0_to_i(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], scan_in_place, NULL);
}

static void scan_exclusively_in_place(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int32_t sum[2] = {rank + 1, 7};
  float product[1] = {2};
  int64_t least[1] = {100 - rank};
  CHECK_CODE(nexarSuccess, nexarExScan(sum, sum, 2, nexarInt32, nexarSum, comm, NULL));
  CHECK_EQ(rank * (rank + 1) / 2, sum[0]);
  CHECK_EQ(7 * rank, sum[1]);
  CHECK_CODE(nexarSuccess, nexarExScan(product, product, 1, nexarFloat32, nexarProd, comm, NULL));
  CHECK(product[0] == powf(2, (float)rank));
  CHECK_CODE(nexarSuccess, nexarExScan(least, least, 1, nexarInt64, nexarMin, comm, NULL));
  CHECK_EQ(rank == 0 ? INT64_MAX : 101 - rank, least[0]);
  check_it_works(rank, n, comm);
}

static void rank_i_receives_the_reduction_over_ranks_before_it(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    run_ranks(sizes[i], scan_exclusively_in_place, NULL);
}

/* A type and its identities as bits. Those of min and max of floats are infinities. */
struct identities {
  nexarDataType_t datatype;
  uint64_t zero, one, of_min, of_max;
};

static const struct identities identities[] = {
    {nexarInt8, 0, 1, 0x7f, 0x80},
    {nexarUint8, 0, 1, 0xff, 0},
    {nexarInt16, 0, 1, 0x7fff, 0x8000},
    {nexarUint16, 0, 1, 0xffff, 0},
    {nexarInt32, 0, 1, INT32_MAX, UINT64_C(0x80000000)},
    {nexarUint32, 0, 1, UINT32_MAX, 0},
    {nexarInt64, 0, 1, INT64_MAX, UINT64_C(0x8000000000000000)},
    {nexarUint64, 0, 1, UINT64_MAX, 0},
    {nexarFloat8e4m3, 0, 0x38, 0x7e, 0xfe}, /* 448: there is no infinity */
    {nexarFloat8e5m2, 0, 0x3c, 0x7c, 0xfc},
    {nexarFloat16, 0, 0x3c00, 0x7c00, 0xfc00},
    {nexarBfloat16, 0, 0x3f80, 0x7f80, 0xff80},
    {nexarFloat32, 0, 0x3f800000, 0x7f800000, 0xff800000},
    {nexarFloat64, 0, UINT64_C(0x3ff0000000000000), UINT64_C(0x7ff0000000000000),
     UINT64_C(0xfff0000000000000)},
};

static void find_the_identities(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  for (size_t i = 0; i < COUNT_OF(identities); i++) {
    const struct identities *type = &identities[i];
    const struct { nexarRedOp_t op; uint64_t identity; } expected[] = {
        {nexarSum, type->zero}, {nexarProd, type->one},
        {nexarMin, type->of_min}, {nexarMax, type->of_max}};
    const struct dtype *dtype = dtype_of(type->datatype);
    for (size_t o = 0; o < COUNT_OF(expected); o++) {
      uint64_t identity[2], own[2] = {0}, got[2] = {0};
      for (size_t k = 0; k < 2; k++) {
        put_integer(dtype, identity, k, expected[o].identity);
        if (dtype->kind == REAL)
          put_real(dtype, own, k, 5);
        else
          put_integer(dtype, own, k, 5);
      }
      CHECK_CODE(nexarSuccess,
                 nexarExScan(own, got, 2, type->datatype, expected[o].op, comm, NULL));
      if (rank == 0) CHECK_SAME(identity, got, 2 * dtype->size, dtype->name);
      CHECK_CODE(nexarSuccess,
                 nexarExScan(own, own, 2, type->datatype, expected[o].op, comm, NULL));
      if (rank == 0) CHECK_SAME(identity, own, 2 * dtype->size, dtype->name);
    }
  }
}

static void rank_0_receives_the_identity_of_every_type_and_operator(void) {
  for (size_t i = 1; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], find_the_identities, NULL);
}

static void a_single_rank_receives_the_identity_too(void) {
  run_ranks(1, find_the_identities, NULL);
}

static void scan_alone(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank, (void)n, (void)arg;
  float data[3] = {1.5f, -FLT_MAX, 0x1p-149f}, before[3];
  memcpy(before, data, sizeof data);
  CHECK_CODE(nexarSuccess, nexarScan(data, data, 3, nexarFloat32, nexarMin, comm, NULL));
  CHECK(memcmp(before, data, sizeof data) == 0);
}

static void a_scan_of_a_single_rank_changes_nothing(void) { run_ranks(1, scan_alone, NULL); }

static const struct test_case cases[] = {
    CASE(rank_i_receives_the_reduction_over_ranks_0_to_i),
    CASE(rank_i_receives_the_reduction_over_ranks_before_it),
    CASE(rank_0_receives_the_identity_of_every_type_and_operator),
    CASE(a_single_rank_receives_the_identity_too),
    CASE(a_scan_of_a_single_rank_changes_nothing),
};

int main(void) { return RUN(cases); }
