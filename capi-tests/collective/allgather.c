/* nexarAllGather and nexarAllGatherV: every rank receives the block of every rank. */
#define _GNU_SOURCE
#include "support/collectives.h"

static void every_rank_receives_all_blocks_in_rank_order(void) {
  run_every_count(JOB(all_gather, nexarInt32));
}

static void every_type_is_moved_8_bit_floats_included(void) {
  for (int n = 2; n <= 4; n++) run_every_type(n, JOB(all_gather, nexarInt8, .count = 1001));
}

static void large_buffers_arrive_whole(void) {
  run_job(3, JOB(all_gather, nexarFloat32, .count = (4 << 20) / 3 + 1, .shift = 1));
  run_job(3, JOB(all_gather, nexarFloat32, .count = (4 << 20) / 3 + 1, .in_place = true));
  run_job(2, JOB(all_gather, nexarFloat32, .count = MIB_64 / 2, .in_place = true));
}

static void blocks_of_every_length_arrive_in_every_place_and_gaps_stay(void) {
  run_every_layout(JOB(all_gather_v, nexarInt32));
}

static void every_type_is_moved_in_blocks_that_differ(void) {
  for (int n = 2; n <= 4; n++)
    run_every_type(n, JOB(all_gather_v, nexarInt8, .count = 1001, .lengths = RAGGED,
                          .places = SPREAD));
}

static void large_blocks_that_differ_arrive_whole(void) {
  run_job(3, JOB(all_gather_v, nexarFloat32, .count = MIB_64 / 3, .lengths = RAGGED,
                 .places = REVERSED));
}

static const struct test_case cases[] = {
    CASE(every_rank_receives_all_blocks_in_rank_order),
    CASE(every_type_is_moved_8_bit_floats_included),
    CASE(large_buffers_arrive_whole),
    CASE(blocks_of_every_length_arrive_in_every_place_and_gaps_stay),
    CASE(every_type_is_moved_in_blocks_that_differ),
    CASE(large_blocks_that_differ_arrive_whole),
};

int main(void) { return RUN(cases); }
