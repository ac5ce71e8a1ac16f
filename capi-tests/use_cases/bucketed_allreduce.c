/*
 * Use case: all-reduce of the buffers of a model as one list, each in place. An empty list is
 * valid.
 */
#define _GNU_SOURCE
#include "support/elements.h"
#include "support/ranks.h"

static void reduce_a_list(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  float weights[4] = {1, 2, 3, (float)rank}, bias[1] = {(float)-rank}, nothing[1] = {42};
  void *buffs[] = {weights, nothing, bias};
  const size_t counts[] = {4, 0, 1};
  CHECK_CODE(nexarSuccess,
             nexarAllReduceBucketed(buffs, counts, 3, nexarFloat32, nexarSum, comm, NULL));
  const float ranks = (float)(n * (n - 1) / 2);
  CHECK(weights[0] == (float)n && weights[1] == (float)(2 * n) && weights[2] == (float)(3 * n));
  CHECK(weights[3] == ranks && bias[0] == -ranks && nothing[0] == 42);
}

static void every_buffer_of_the_list_is_reduced_in_place(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], reduce_a_list, NULL);
}

/* Buffers of 1000 elements together, listed in another order than they have in memory. */
static void compare_with_the_concatenation(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n;
  const nexarRedOp_t op = *(const nexarRedOp_t *)arg;
  enum { NUMBER = 5, ALL = 1000 };
  const size_t counts[NUMBER] = {1, 499, 0, 100, 400};
  int64_t memory[ALL], whole[ALL];
  void *buffs[NUMBER];
  size_t end = ALL, at = 0;
  for (int i = 0; i < NUMBER; i++) buffs[i] = memory + (end -= counts[i]);
  for (int i = 0; i < ALL; i++) memory[i] = (int64_t)mixed((uint64_t)rank, (uint64_t)i);
  for (int i = 0; i < NUMBER; at += counts[i++])
    memcpy(whole + at, buffs[i], counts[i] * sizeof *whole);
  CHECK_CODE(nexarSuccess,
             nexarAllReduceBucketed(buffs, counts, NUMBER, nexarInt64, op, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarAllReduce(whole, whole, ALL, nexarInt64, op, comm, NULL));
  at = 0;
  for (int i = 0; i < NUMBER; at += counts[i++])
    CHECK_SAME(whole + at, buffs[i], counts[i] * sizeof *whole, "a buffer of the list");
}

static void a_list_equals_the_all_reduce_of_its_concatenation(void) {
  nexarRedOp_t operators[] = {nexarSum, nexarProd, nexarMin, nexarMax};
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t o = 0; o < COUNT_OF(operators); o++)
      run_ranks(sizes[i], compare_with_the_concatenation, &operators[o]);
}

static void reduce_an_empty_list(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  void *buffs[] = {NULL};
  const size_t counts[] = {0};
  CHECK_CODE(nexarSuccess,
             nexarAllReduceBucketed(buffs, counts, 0, nexarFloat32, nexarSum, comm, NULL));
  check_it_works(rank, n, comm);
}

static void an_empty_list_is_valid(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], reduce_an_empty_list, NULL);
}

static const struct test_case cases[] = {
    CASE(every_buffer_of_the_list_is_reduced_in_place),
    CASE(a_list_equals_the_all_reduce_of_its_concatenation),
    CASE(an_empty_list_is_valid),
};

int main(void) { return RUN(cases); }
