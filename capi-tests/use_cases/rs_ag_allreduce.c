/*
 * Use case: all-reduce as a reduce-scatter of chunks and an all-gather of them. Chunk i has
 * count / n elements, one more if i < count % n. The halves are nexarReduceScatterV and
 * nexarAllGatherV with those counts. The program runs with the library's choice of algorithm and
 * again with NEXAR_ALGO=rs_ag.
 */
#define _GNU_SOURCE
#include "support/elements.h"
#include "support/ranks.h"

enum { MOST = 1000 };

/* Fewer elements than ranks, as many, one more or less, and many. */
static const size_t all_counts[] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 17, 100, 999, MOST};

static void chunks(size_t count, int n, size_t *counts) {
  for (int i = 0; i < n; i++) counts[i] = count / (size_t)n + ((size_t)i < count % (size_t)n);
}

static void sum(int rank, int n, nexarComm_t comm, void *arg) {
  const size_t count = *(const size_t *)arg;
  float data[MOST + 1];
  for (size_t i = 0; i <= count; i++) data[i] = (float)((size_t)rank * 1000 + i);
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, count, nexarFloat32, nexarSum, comm, NULL));
  for (size_t i = 0; i < count; i++)
    CHECK(data[i] == (float)(500 * n * (n - 1)) + (float)n * (float)i);
  CHECK(data[count] == (float)((size_t)rank * 1000 + count)); /* behind the buffer: not written */
}

static void every_count_is_reduced_however_uneven_its_chunks_are(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(all_counts); c++)
      run_ranks(sizes[i], sum, (void *)&all_counts[c]);
}

/* Between the halves each rank modifies its own chunk: here it takes square roots. */
static void modify_between_the_halves(int rank, int n, nexarComm_t comm, void *arg) {
  const size_t count = *(const size_t *)arg;
  double data[MOST] = {0};
  size_t counts[MOST_RANKS], before = 0;
  chunks(count, n, counts);
  for (int i = 0; i < rank; i++) before += counts[i];
  double *own = data + before;
  for (size_t i = 0; i < count; i++) data[i] = (double)(rank + 1) * (double)i;
  CHECK_CODE(nexarSuccess,
             nexarReduceScatterV(data, own, counts, nexarFloat64, nexarSum, comm, NULL));
  const double factor = (double)n * (n + 1) / 2;
  for (size_t i = 0; i < counts[rank]; i++) {
    CHECK(own[i] == factor * (double)(before + i));
    own[i] = sqrt(own[i]);
  }
  CHECK_CODE(nexarSuccess,
             nexarAllGatherV(own, counts[rank], data, counts, NULL, nexarFloat64, comm, NULL));
  for (size_t i = 0; i < count; i++) CHECK(data[i] == sqrt(factor * (double)i));
}

static void the_halves_work_alone(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(all_counts); c++)
      run_ranks(sizes[i], modify_between_the_halves, (void *)&all_counts[c]);
}

/* Sums that depend on the order of reduction. */
static void compare_with_the_halves(int rank, int n, nexarComm_t comm, void *arg) {
  const size_t count = *(const size_t *)arg;
  float whole[MOST] = {0}, data[MOST] = {0}, own[MOST];
  size_t counts[MOST_RANKS];
  chunks(count, n, counts);
  for (size_t i = 0; i < count; i++)
    whole[i] = data[i] = (float)mixed((uint64_t)rank, i) * (i % 2 ? 0x1p-40f : -0x1p-60f);
  CHECK_CODE(nexarSuccess,
             nexarAllReduce(whole, whole, count, nexarFloat32, nexarSum, comm, NULL));
  CHECK_CODE(nexarSuccess,
             nexarReduceScatterV(data, own, counts, nexarFloat32, nexarSum, comm, NULL));
  CHECK_CODE(nexarSuccess,
             nexarAllGatherV(own, counts[rank], data, counts, NULL, nexarFloat32, comm, NULL));
  CHECK_SAME(whole, data, count * sizeof *data, "the halves");
}

/* Runs only with NEXAR_ALGO=rs_ag: other algorithms reduce in another order. */
static void the_halves_have_the_bits_of_the_whole(void) {
  const char *algorithms = getenv("NEXAR_ALGO");
  if (!algorithms || !strstr(algorithms, "rs_ag")) {
    check_parts_skipped++;
    return;
  }
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(all_counts); c++)
      run_ranks(sizes[i], compare_with_the_halves, (void *)&all_counts[c]);
}

static void all_ranks_get_the_same_bits(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  float data[MOST], *all = malloc((size_t)n * sizeof data);
  for (size_t i = 0; i < MOST; i++)
    data[i] = (float)mixed((uint64_t)rank, i) * (i % 2 ? 0x1p-40f : -0x1p-60f);
  CHECK_CODE(nexarSuccess, nexarAllReduce(data, data, MOST, nexarFloat32, nexarSum, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarAllGather(data, all, MOST, nexarFloat32, comm, NULL));
  for (int r = 0; r < n; r++)
    CHECK_SAME(data, all + r * MOST, sizeof data, "another rank's result");
  free(all);
}

static void each_chunk_is_reduced_once_and_then_copied(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    run_ranks(sizes[i], all_ranks_get_the_same_bits, NULL);
}

static const struct test_case cases[] = {
    CASE(every_count_is_reduced_however_uneven_its_chunks_are),
    CASE(the_halves_work_alone),
    CASE(the_halves_have_the_bits_of_the_whole),
    CASE(each_chunk_is_reduced_once_and_then_copied),
};

int main(void) { return RUN(cases); }
