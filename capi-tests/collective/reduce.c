/* nexarReduce against the oracle of elements.h, bit by bit at every root. */
#define _GNU_SOURCE
#include "support/collectives.h"

static void every_root_receives_the_result_and_no_other_rank_is_written(void) {
  run_every_count(JOB(reduce, nexarFloat32));
}

static void every_operator_on_every_type_gives_the_fold(void) {
  for (int n = 2; n <= 4; n++) run_every_operator(n, JOB(reduce, nexarInt8, .count = 1001));
}

static void a_rank_alone_gets_what_the_operator_says(void) {
  run_every_operator(1, JOB(reduce, nexarInt8, .count = 37));
}

static void large_buffers_lose_no_element(void) {
  run_job(3, JOB(reduce, nexarFloat32, .count = (4 << 20) + 3, .root = 1, .in_place = true));
  run_job(3, JOB(reduce, nexarInt8, .op.known = nexarAvg, .count = (4 << 20) + 3, .root = 2,
                 .shift = 1));
  run_job(2, JOB(reduce, nexarFloat32, .count = MIB_64, .root = 1, .in_place = true));
}

static const struct test_case cases[] = {
    CASE(every_root_receives_the_result_and_no_other_rank_is_written),
    CASE(every_operator_on_every_type_gives_the_fold),
    CASE(a_rank_alone_gets_what_the_operator_says),
    CASE(large_buffers_lose_no_element),
};

int main(void) { return RUN(cases); }
