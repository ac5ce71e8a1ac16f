/*
 * nexarAllReduceBucketed of buffers that are separate allocations, in memory of any kind and any
 * order of addresses.
 */
#include "buffers.h"
#include "vectors.h"

enum { MOST = 40 };

struct bucket {
  enum memory memory;
  size_t count;
  struct arena arena, image, seen;
};

static enum memory memory_of(int rank, size_t i, bool all_on_device) {
  size_t turn = (i + 2 * (size_t)rank) % COUNT_OF(memories_in_turn);
  return all_on_device ? DEVICE : memories_in_turn[turn];
}

static uint32_t element(int rank, size_t bucket, size_t i) {
  return (uint32_t)mixed((uint64_t)rank * 1000 + bucket, i);
}

static int by_address(const void *one, const void *other) {
  uintptr_t a = (uintptr_t)((const struct bucket *)one)->arena.at;
  uintptr_t b = (uintptr_t)((const struct bucket *)other)->arena.at;
  return a < b ? -1 : a > b;
}

/* sorted: by address, which needs equal counts, because all ranks have the same list of counts. */
static void make_buckets(struct bucket *buckets, size_t number, const size_t *counts, int rank,
                         bool all_on_device, bool sorted) {
  for (size_t i = 0; i < number; i++) {
    buckets[i] = (struct bucket){.memory = memory_of(rank, i, all_on_device), .count = counts[i]};
    if (!counts[i]) continue;
    get_arena(&buckets[i].arena, buckets[i].memory, 4 * counts[i]);
    get_arena(&buckets[i].image, PINNED, 4 * counts[i]);
    get_arena(&buckets[i].seen, PINNED, 4 * counts[i]);
  }
  if (sorted) qsort(buckets, number, sizeof *buckets, by_address);
  for (size_t b = 0; b < number; b++)
    for (size_t i = 0; i < counts[b]; i++)
      ((uint32_t *)buckets[b].image.at)[i] = element(rank, b, i);
}

static bool is_reduced(const struct bucket *bucket, size_t number, int n) {
  const uint32_t *seen = (const uint32_t *)bucket->seen.at;
  for (size_t i = 0; i < bucket->count; i++) {
    uint32_t sum = 0;
    for (int rank = 0; rank < n; rank++) sum += element(rank, number, i);
    if (seen[i] != sum) return false;
  }
  return true;
}

static void reduce_list(const size_t *counts, size_t number, bool all_on_device, bool sorted,
                        CUstream stream) {
  struct here h = here();
  struct bucket buckets[MOST];
  void *buffs[MOST];
  make_buckets(buckets, number, counts, h.rank, all_on_device, sorted);
  for (size_t i = 0; i < number; i++) {
    struct bucket *b = &buckets[i];
    buffs[i] = b->arena.at;
    if (b->count) copy_on_stream(b->arena.at, b->image.at, 4 * b->count, b->memory, stream);
  }
  if (!stream && !all_on_device) synchronize(NULL);
  CALL(nexarAllReduceBucketed(buffs, counts, number, nexarUint32, nexarSum, h.comm, stream));
  for (size_t i = 0; i < number; i++) {
    struct bucket *b = &buckets[i];
    if (b->count) copy_on_stream(b->seen.at, b->arena.at, 4 * b->count, b->memory, stream);
  }
  synchronize(stream);
  for (size_t i = 0; i < number; i++) {
    CHECK(is_reduced(&buckets[i], i, h.n));
    free_arena(&buckets[i].arena, buckets[i].memory);
    free_arena(&buckets[i].image, PINNED);
    free_arena(&buckets[i].seen, PINNED);
  }
}

static void reduce_equal(size_t count, size_t number) {
  size_t counts[MOST];
  for (size_t i = 0; i < number; i++) counts[i] = count;
  CUstream stream = new_stream(CU_STREAM_NON_BLOCKING);
  reduce_list(counts, number, true, true, stream);
  reduce_list(counts, number, true, false, NULL);
  reduce_list(counts, number, false, true, stream);
  reduce_list(counts, number, false, false, NULL);
  end_stream(stream);
}

static void buffers_of_one_size_are_reduced_wherever_they_are(void) {
  reduce_equal(1, 2);
  reduce_equal(1000, MOST);
  reduce_equal(1024, 7);
}

static void buffers_of_several_pieces_are_reduced_wherever_they_are(void) {
  reduce_equal(150000, 20);
  reduce_equal((5 << 20) / 2, 3);
}

static void buffers_of_all_sizes_are_reduced(void) {
  size_t counts[MOST];
  for (size_t i = 0; i < MOST; i++) counts[i] = i % 5 == 3 ? 0 : i * i * i * 4 + 1;
  reduce_list(counts, MOST, false, false, NULL);
  reduce_list(counts, MOST, true, false, CU_STREAM_PER_THREAD);
  reduce_list(counts, 0, true, false, CU_STREAM_PER_THREAD);
}

static const struct test_case cases[] = {
    CASE(buffers_of_one_size_are_reduced_wherever_they_are),
    CASE(buffers_of_several_pieces_are_reduced_wherever_they_are),
    CASE(buffers_of_all_sizes_are_reduced),
};

int main(void) {
  begin_elsewhere();
  return RUN(cases);
}
