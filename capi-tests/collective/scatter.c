/* nexarScatter and nexarScatterV: every rank receives its block of the root. */
#define _GNU_SOURCE
#include "support/collectives.h"

static void every_rank_receives_its_block_of_every_root(void) {
  run_every_count(JOB(scatter, nexarInt32));
}

static void every_type_is_moved_8_bit_floats_included(void) {
  for (int n = 2; n <= 4; n++) run_every_type(n, JOB(scatter, nexarInt8, .count = 1001));
}

static void large_buffers_arrive_whole(void) {
  run_job(3, JOB(scatter, nexarFloat32, .count = (4 << 20) / 3 + 1, .root = 1, .shift = 1));
  run_job(2, JOB(scatter, nexarFloat32, .count = MIB_64 / 2, .root = 1, .in_place = true));
}

static void blocks_of_every_length_leave_from_every_place(void) {
  run_every_layout(JOB(scatter_v, nexarInt32));
}

static void every_type_is_moved_in_blocks_that_differ(void) {
  for (int n = 2; n <= 4; n++)
    run_every_type(n, JOB(scatter_v, nexarInt8, .count = 1001, .lengths = RAGGED,
                          .places = SPREAD));
}

static void large_blocks_that_differ_arrive_whole(void) {
  run_job(3, JOB(scatter_v, nexarFloat32, .count = MIB_64 / 3, .root = 2, .lengths = RAGGED,
                 .places = REVERSED));
}

static const struct test_case cases[] = {
    CASE(every_rank_receives_its_block_of_every_root),
    CASE(every_type_is_moved_8_bit_floats_included),
    CASE(large_buffers_arrive_whole),
    CASE(blocks_of_every_length_leave_from_every_place),
    CASE(every_type_is_moved_in_blocks_that_differ),
    CASE(large_blocks_that_differ_arrive_whole),
};

int main(void) { return RUN(cases); }
