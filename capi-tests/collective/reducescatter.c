/* nexarReduceScatter and nexarReduceScatterV: rank i receives block i of the result. */
#define _GNU_SOURCE
#include "support/collectives.h"

static void every_rank_gets_its_own_block_of_the_fold(void) {
  run_every_count(JOB(reduce_scatter, nexarFloat32));
}

static void every_operator_on_every_type_gives_the_fold(void) {
  for (int n = 2; n <= 4; n++)
    run_every_operator(n, JOB(reduce_scatter, nexarInt8, .count = 1001));
}

static void a_rank_alone_gets_what_the_operator_says(void) {
  run_every_operator(1, JOB(reduce_scatter, nexarInt8, .count = 37));
  run_every_operator(1, JOB(reduce_scatter_v, nexarInt8, .count = 37));
}

static void large_buffers_lose_no_element(void) {
  run_job(3, JOB(reduce_scatter, nexarFloat32, .count = (4 << 20) / 3 + 1, .in_place = true,
                 .shift = 1));
  run_job(3, JOB(reduce_scatter, nexarBfloat16, .op.known = nexarMax, .count = (1 << 20) + 3,
                 .shift = 1));
  run_job(2, JOB(reduce_scatter, nexarFloat32, .count = MIB_64 / 2, .in_place = true));
}

static void blocks_of_every_length_go_to_their_ranks(void) {
  run_every_layout(JOB(reduce_scatter_v, nexarFloat32));
}

static void every_operator_on_every_type_folds_blocks_that_differ(void) {
  for (int n = 2; n <= 4; n++)
    run_every_operator(n, JOB(reduce_scatter_v, nexarInt8, .count = 501, .lengths = RAGGED));
}

static void large_blocks_that_differ_lose_no_element(void) {
  run_job(3, JOB(reduce_scatter_v, nexarFloat32, .count = MIB_64 / 3, .lengths = RAGGED));
  run_job(4, JOB(reduce_scatter_v, nexarInt64, .op.known = nexarBitXor, .count = (1 << 20) + 3,
                 .lengths = RAGGED, .shift = 1));
}

static const struct test_case cases[] = {
    CASE(every_rank_gets_its_own_block_of_the_fold),
    CASE(every_operator_on_every_type_gives_the_fold),
    CASE(a_rank_alone_gets_what_the_operator_says),
    CASE(large_buffers_lose_no_element),
    CASE(blocks_of_every_length_go_to_their_ranks),
    CASE(every_operator_on_every_type_folds_blocks_that_differ),
    CASE(large_blocks_that_differ_lose_no_element),
};

int main(void) { return RUN(cases); }
