/*
 * Regression tests for known defects of the crate nexar 0.2.0, another implementation. A comment
 * names the defect there; each case is named after the required behaviour.
 */
#define _GNU_SOURCE
#include "support/collectives.h"
#include "support/rounding.h"

/* 0.2.0 cut large buffers by bytes, and elements at the cuts kept their local value. */
static void sum_ones(int rank, int n, nexarComm_t comm, void *arg) {
  (void)rank;
  const struct dtype *dtype = arg;
  size_t count = (16 << 20) / dtype->size;
  unsigned char *data = malloc(count * dtype->size), *expected = malloc(count * dtype->size);
  for (size_t i = 0; i < count; i++) put_real(dtype, data, i, 1), put_real(dtype, expected, i, n);
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, count, dtype->code, nexarSum, comm, NULL));
  CHECK_SAME(expected, data, count * dtype->size, dtype->name);
  free(data);
  free(expected);
}

static void all_elements_of_16_mebibytes_on_3_ranks_are_reduced(void) {
  run_ranks(3, sum_ones, (void *)dtype_of(nexarFloat32));
  run_ranks(3, sum_ones, (void *)dtype_of(nexarBfloat16));
}

/* One element more than equal chunks of 2 MiB: ranks of 0.2.0 disagreed on the segments. */
static void ranks_agree_on_the_segments_of_2097153_floats_on_4_ranks(void) {
  run_job(4, JOB(all_reduce, nexarFloat32, .count = 2097153, .in_place = true));
}

/* 0.2.0 gave each rank the chunk of the next rank. */
static void scatter_numbered_chunks(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  enum { COUNT = 5 };
  float chunks[MOST_RANKS * COUNT], own[COUNT];
  for (int i = 0; i < n * COUNT; i++) chunks[i] = (float)(i / COUNT);
  CHECK_CODE(nexarSuccess,
             nexarReduceScatter(chunks, own, COUNT, nexarFloat32, nexarSum, comm, NULL));
  for (int i = 0; i < COUNT; i++) CHECK(own[i] == (float)(n * rank));
}

static void reduce_scatter_gives_each_rank_its_own_chunk(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], scatter_numbered_chunks, NULL);
}

static void a_carry_of_float16_rounding_reaches_the_exponent(void) {
  const struct rounding roundings[] = {
      {nexarFloat16, 1, 0.9998f, 0x4000},      /* 1.99976 is a tie: 2; 0.2.0: 1 */
      {nexarFloat16, 4, 3.999f, 0x4800},       /* 8; 0.2.0: 4 */
      {nexarFloat16, 0.25f, 0.24995f, 0x3800}, /* 0.5; 0.2.0: 0.25 */
  };
  RUN_ROUNDINGS(roundings);
}

/* 0.2.0 flushed them to 0. */
static void float16_subnormals_are_kept(void) {
  const struct rounding roundings[] = {
      {nexarFloat16, 0x1p-24f, 0, 0x0001},
      {nexarFloat16, 0x1p-16f, 0x1p-17f, 0x0180},
      {nexarFloat16, 0x1p-14f, -0x1p-24f, 0x03ff},
  };
  RUN_ROUNDINGS(roundings);
}

/* 0.2.0 truncated. */
static void bfloat16_is_rounded_to_even(void) {
  const struct rounding roundings[] = {
      {nexarBfloat16, 256, 1.5f, 0x4381}, /* 257.5: up to 258 */
      {nexarBfloat16, 256, 1, 0x4380},    /* a tie: down to 256 */
      {nexarBfloat16, 258, 1, 0x4382},    /* a tie: up to 260 */
      {nexarBfloat16, -258, -1, 0xc382},
  };
  RUN_ROUNDINGS(roundings);
}

/* 0.2.0 lost a NaN or kept it, depending on its index: one NaN at every index and on every rank. */
static void hide_a_nan(int rank, int n, nexarComm_t comm, void *arg) {
  enum { COUNT = 70 };
  const struct dtype *dtype = arg;
  const nexarRedOp_t extremes[] = {nexarMin, nexarMax};
  for (size_t o = 0; o < COUNT_OF(extremes); o++)
    for (int owner = 0; owner < n; owner++)
      for (size_t at = 0; at < COUNT; at++) {
        unsigned char data[8 * COUNT], expected[8 * COUNT];
        char what[60];
        snprintf(what, sizeof what, "%s: NaN at %zu of rank %d", dtype->name, at, owner);
        for (size_t i = 0; i < COUNT; i++) {
          bool nan = i == at;
          put_real(dtype, data, i, nan && rank == owner ? NAN : rank + (double)i);
          put_real(dtype, expected, i,
                   nan ? NAN : (extremes[o] == nexarMax ? n - 1 : 0) + (double)i);
        }
        CHECK_CODE(nexarSuccess,
                   nexarAllReduce(data, data, COUNT, dtype->code, extremes[o], comm, NULL));
        CHECK_SAME(expected, data, COUNT * dtype->size, what);
      }
}

static void a_nan_is_kept_at_every_index(void) {
  for (size_t d = 0; d < COUNT_OF(dtypes); d++)
    for (int n = 2; n <= 3 && dtypes[d].kind == REAL; n++)
      run_ranks(n, hide_a_nan, (void *)&dtypes[d]);
}

/* In 0.2.0, messages of concurrent calls had the same tag. */
enum { COMMUNICATORS = 4, CALLS = 200 };

struct caller {
  int rank, n, number;
  nexarComm_t comm;
};

static void *make_many_calls(void *arg) {
  const struct caller *caller = arg;
  for (int i = 0; i < CALLS; i++) {
    struct job job = any_job(caller->number, i, caller->n);
    call_and_compare(caller->rank, caller->n, caller->comm, &job);
  }
  return NULL;
}

/* A thread for each communicator. */
static void use_many_at_once(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct caller callers[COMMUNICATORS];
  pthread_t threads[COMMUNICATORS];
  for (int i = 0; i < COMMUNICATORS; i++)
    callers[i] = (struct caller){rank, n, i, i == 0 ? comm : join_another(rank, n, comm)};
  for (int i = 0; i < COMMUNICATORS; i++)
    CHECK_EQ(0, pthread_create(&threads[i], NULL, make_many_calls, &callers[i]));
  for (int i = 0; i < COMMUNICATORS; i++) {
    CHECK_EQ(0, pthread_join(threads[i], NULL));
    if (i > 0) CHECK_CODE(nexarSuccess, nexarCommDestroy(callers[i].comm));
  }
}

static void concurrent_calls_receive_their_own_messages(void) {
  for (int n = 2; n <= 4; n++) run_ranks(n, use_many_at_once, NULL);
}

/* In 0.2.0, the last message of an exclusive scan looked like the first one. */
static void scan_again_and_again(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  for (int i = 0; i < 1000; i++) {
    int64_t before = -1, own = rank + i, expected = 0;
    for (int r = 0; r < rank; r++) expected += r + i;
    CHECK_CODE(nexarSuccess, nexarExScan(&own, &before, 1, nexarInt64, nexarSum, comm, NULL));
    CHECK_EQ(expected, before);
    CHECK_CODE(nexarSuccess, nexarScan(&own, &own, 1, nexarInt64, nexarSum, comm, NULL));
    CHECK_EQ(expected + rank + i, own);
    progress();
  }
}

static void the_messages_of_an_exclusive_scan_are_told_apart(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++) run_ranks(sizes[i], scan_again_and_again, NULL);
}

static long resident_kib(void) {
  long pages = 0, resident = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file || fscanf(file, "%ld %ld", &pages, &resident) != 2) abort();
  fclose(file);
  return resident * (sysconf(_SC_PAGESIZE) / 1024);
}

/* 0.2.0 counted calls in 16 bits, so call 65536 hung; and every call leaked a channel. */
static void make_70000_calls(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  long before = 0;
  for (int i = 0; i < 70000; i++) {
    int32_t data = rank + i;
    if (i == 10000) before = resident_kib();
    CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 1, nexarInt32, nexarMax, comm, NULL));
    CHECK_EQ(n - 1 + i, data);
    progress();
  }
  long grown = resident_kib() - before;
  if (grown > 1024) check_failed(__FILE__, __LINE__, "60000 calls took %ld KiB", grown);
}

static void call_65536_completes_and_no_call_leaks(void) { run_ranks(2, make_70000_calls, NULL); }

static const struct test_case cases[] = {
    CASE(all_elements_of_16_mebibytes_on_3_ranks_are_reduced),
    CASE(ranks_agree_on_the_segments_of_2097153_floats_on_4_ranks),
    CASE(reduce_scatter_gives_each_rank_its_own_chunk),
    CASE(a_carry_of_float16_rounding_reaches_the_exponent),
    CASE(float16_subnormals_are_kept),
    CASE(bfloat16_is_rounded_to_even),
    CASE(a_nan_is_kept_at_every_index),
    CASE(concurrent_calls_receive_their_own_messages),
    CASE(the_messages_of_an_exclusive_scan_are_told_apart),
    CASE(call_65536_completes_and_no_call_leaks),
};

int main(void) { return RUN(cases); }
