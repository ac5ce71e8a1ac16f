/* nexarScan and nexarExScan: rank i receives the reduction over ranks 0 to i, or 0 to i - 1. */
#define _GNU_SOURCE
#include "support/collectives.h"

static void every_rank_receives_the_reduction_up_to_itself(void) {
  run_every_count(JOB(scan, nexarFloat32));
}

static void every_rank_receives_the_reduction_before_itself_and_rank_0_the_identity(void) {
  run_every_count(JOB(ex_scan, nexarFloat32));
}

static void every_operator_on_every_type_gives_the_fold(void) {
  for (int n = 2; n <= 4; n++) {
    run_every_operator(n, JOB(scan, nexarInt8, .count = 1001));
    run_every_operator(n, JOB(ex_scan, nexarInt8, .count = 1001));
  }
}

static void every_operator_on_every_type_gives_the_fold_of_many_elements(void) {
  run_every_operator(3, JOB(scan, nexarInt8, .count = 70001)); /* above 64 KiB in every type */
  run_every_operator(3, JOB(ex_scan, nexarInt8, .count = 70001));
}

static void a_rank_alone_gets_its_own_elements_or_the_identity(void) {
  run_every_operator(1, JOB(scan, nexarInt8, .count = 37));
  run_every_operator(1, JOB(ex_scan, nexarInt8, .count = 37));
}

static void large_buffers_lose_no_element(void) {
  run_job(3, JOB(scan, nexarFloat32, .count = MIB_64));
  run_job(3, JOB(ex_scan, nexarFloat32, .count = MIB_64, .in_place = true));
  run_job(4, JOB(scan, nexarInt64, .op.known = nexarMax, .count = (1 << 20) + 3, .shift = 1));
  run_job(4, JOB(ex_scan, nexarInt64, .op.known = nexarMin, .count = (1 << 20) + 3, .shift = 1));
}

static const struct test_case cases[] = {
    CASE(every_rank_receives_the_reduction_up_to_itself),
    CASE(every_rank_receives_the_reduction_before_itself_and_rank_0_the_identity),
    CASE(every_operator_on_every_type_gives_the_fold),
    CASE(every_operator_on_every_type_gives_the_fold_of_many_elements),
    CASE(a_rank_alone_gets_its_own_elements_or_the_identity),
    CASE(large_buffers_lose_no_element),
};

int main(void) { return RUN(cases); }
