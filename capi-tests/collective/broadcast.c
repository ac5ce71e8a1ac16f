/* nexarBroadcast and nexarBcast: every rank receives the root's bytes. */
#define _GNU_SOURCE
#include "support/collectives.h"

static void every_rank_receives_the_bytes_of_every_root(void) {
  run_every_count(JOB(broadcast, nexarInt32));
  run_every_count(JOB(bcast, nexarInt32));
}

static void every_type_is_moved_8_bit_floats_included(void) {
  for (int n = 2; n <= 4; n++) run_every_type(n, JOB(broadcast, nexarInt8, .count = 1001));
}

static void large_buffers_arrive_whole(void) {
  run_job(3, JOB(broadcast, nexarFloat32, .count = (4 << 20) + 3, .root = 1, .shift = 1));
  run_job(3, JOB(bcast, nexarFloat32, .count = (4 << 20) + 3, .root = 1, .shift = 1));
  run_job(2, JOB(bcast, nexarFloat32, .count = MIB_64, .root = 1));
}

static const struct test_case cases[] = {
    CASE(every_rank_receives_the_bytes_of_every_root),
    CASE(every_type_is_moved_8_bit_floats_included),
    CASE(large_buffers_arrive_whole),
};

int main(void) { return RUN(cases); }
