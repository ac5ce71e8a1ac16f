/* nexarAllGather: every rank ends with all ranks' bytes, in rank order. */
#define _GNU_SOURCE
#include "elements.h"
#include "ranks.h"

struct job {
  nexarDataType_t datatype;
  size_t count, size, shift;
  bool in_place;
};

static void fill_bytes(unsigned char *at, size_t bytes, int rank) {
  for (size_t i = 0; i < bytes; i++) at[i] = (unsigned char)mixed((uint64_t)rank, i);
}

static void gather_and_compare(int rank, int n, nexarComm_t comm, void *arg) {
  const struct job *job = arg;
  size_t block = job->count * job->size, all = (size_t)n * block, own = (size_t)rank * block;
  char what[100];
  snprintf(what, sizeof what, "type %d, %zu elements, rank %d of %d%s", (int)job->datatype,
           job->count, rank, n, job->in_place ? ", in place" : "");

  struct guarded send = guarded(block, job->shift), recv = guarded(all, job->shift);
  struct guarded expected = guarded(all, 0);
  for (int r = 0; r < n; r++) fill_bytes(expected.at + (size_t)r * block, block, r);
  unsigned char *from = job->in_place ? recv.at + own : send.at;
  memcpy(from, expected.at + own, block);
  CHECK_CODE(nexarSuccess, nexarAllGather(from, recv.at, job->count, job->datatype, comm, NULL));
  CHECK_SAME(expected.at, recv.at, all, what);
  CHECK_SAME(expected.at + own, from, block, what);
  check_guards(send);
  check_guards(recv);
  check_guards(expected);
}

static void everybody_gets_all_blocks_in_rank_order(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    FOR_COUNTS(count, sizes[i])
      for (int in_place = 0; in_place < 2; in_place++)
        for (size_t shift = 0; shift < 2; shift++) {
          struct job job = {nexarInt32, count, 4, shift, in_place};
          run_ranks(sizes[i], gather_and_compare, &job);
        }
}

static void every_type_is_moved_8_bit_floats_included(void) {
  for (size_t d = 0; d < COUNT_OF(dtypes) + 2; d++) {
    struct job job = {nexarFloat8e4m3, 1001, 1, 1, d % 2};
    if (d == 1) job.datatype = nexarFloat8e5m2;
    if (d >= 2) job.datatype = dtypes[d - 2].code, job.size = dtypes[d - 2].size;
    for (int n = 2; n <= 4; n++) run_ranks(n, gather_and_compare, &job);
  }
}

static void large_buffers_arrive_whole(void) {
  struct job job = {nexarFloat32, (4 << 20) / 3 + 1, 4, 1, false};
  run_ranks(3, gather_and_compare, &job);
  job.in_place = true;
  run_ranks(3, gather_and_compare, &job);
  job.count = 8 << 20; /* 64 MiB of both ranks */
  run_ranks(2, gather_and_compare, &job);
}

static const struct test_case cases[] = {
    CASE(everybody_gets_all_blocks_in_rank_order),
    CASE(every_type_is_moved_8_bit_floats_included),
    CASE(large_buffers_arrive_whole),
};

int main(void) { return RUN(cases); }
