/* nexarAllReduceBucketed: reduces every buffer of the list and writes no memory between them. */
#define _GNU_SOURCE
#include "support/collectives.h"

static void every_buffer_of_a_list_becomes_the_fold(void) {
  run_every_layout(JOB(all_reduce_bucketed, nexarFloat32, .buffers = 9));
}

static void a_list_may_have_one_buffer_or_none(void) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (int buffers = 0; buffers < 2; buffers++)
      run_job(sizes[i], JOB(all_reduce_bucketed, nexarFloat32, .count = 1001, .buffers = buffers));
}

static void every_operator_on_every_type_gives_the_fold(void) {
  for (int n = 1; n <= 4; n++)
    run_every_operator(n, JOB(all_reduce_bucketed, nexarInt8, .count = 501, .buffers = 7,
                              .lengths = RAGGED, .places = SPREAD));
}

static void long_buffers_and_short_ones_in_any_order(void) {
  run_job(3, JOB(all_reduce_bucketed, nexarFloat32, .count = (1 << 18) + 3, .buffers = 40,
                 .lengths = RAGGED, .places = REVERSED, .shift = 1));
  run_job(2, JOB(all_reduce_bucketed, nexarFloat32, .count = MIB_64 / 5, .buffers = 5));
}

static const struct test_case cases[] = {
    CASE(every_buffer_of_a_list_becomes_the_fold),
    CASE(a_list_may_have_one_buffer_or_none),
    CASE(every_operator_on_every_type_gives_the_fold),
    CASE(long_buffers_and_short_ones_in_any_order),
};

int main(void) { return RUN(cases); }
