/* nexarAllToAll and nexarAllToAllV: each rank receives its block of every rank. */
#define _GNU_SOURCE
#include "support/collectives.h"

static void block_i_goes_to_rank_i_and_becomes_the_block_of_its_sender(void) {
  run_every_count(JOB(all_to_all, nexarInt32));
}

static void every_type_is_moved_8_bit_floats_included(void) {
  for (int n = 2; n <= 4; n++) run_every_type(n, JOB(all_to_all, nexarInt8, .count = 1001));
}

static void large_buffers_arrive_whole(void) {
  run_job(3, JOB(all_to_all, nexarFloat32, .count = (4 << 20) / 3 + 1, .shift = 1));
  run_job(3, JOB(all_to_all, nexarFloat32, .count = (4 << 20) / 3 + 1, .in_place = true));
  run_job(2, JOB(all_to_all, nexarFloat32, .count = MIB_64 / 2));
}

static void blocks_of_every_length_arrive_in_every_place_and_gaps_stay(void) {
  run_every_layout(JOB(all_to_all_v, nexarInt32));
}

static void every_type_is_moved_in_blocks_that_differ(void) {
  for (int n = 2; n <= 4; n++)
    run_every_type(n, JOB(all_to_all_v, nexarInt8, .count = 1001, .lengths = RAGGED,
                          .places = SPREAD));
}

static void large_blocks_that_differ_arrive_whole(void) {
  run_job(3, JOB(all_to_all_v, nexarFloat32, .count = MIB_64 / 3, .lengths = RAGGED,
                 .places = REVERSED));
  run_job(3, JOB(all_to_all_v, nexarFloat32, .count = (1 << 20) + 3, .lengths = RAGGED,
                 .places = SPREAD, .in_place = true, .shift = 1));
}

static const struct test_case cases[] = {
    CASE(block_i_goes_to_rank_i_and_becomes_the_block_of_its_sender),
    CASE(every_type_is_moved_8_bit_floats_included),
    CASE(large_buffers_arrive_whole),
    CASE(blocks_of_every_length_arrive_in_every_place_and_gaps_stay),
    CASE(every_type_is_moved_in_blocks_that_differ),
    CASE(large_blocks_that_differ_arrive_whole),
};

int main(void) { return RUN(cases); }
