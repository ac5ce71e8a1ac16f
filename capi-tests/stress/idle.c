/* The processor time that all ranks of an idle communicator use together, heartbeats included. */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <time.h>

#include "support/ranks.h"

enum { IDLE_S = 10, MOST_MICROSECONDS = 500000 };

static int64_t processor_microseconds(void) {
  struct rusage usage;
  CHECK_EQ(0, getrusage(RUSAGE_SELF, &usage));
  return (usage.ru_utime.tv_sec + usage.ru_stime.tv_sec) * 1000000LL + usage.ru_utime.tv_usec +
         usage.ru_stime.tv_usec;
}

static void be_idle(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  check_it_works(rank, n, comm);
  int64_t before = processor_microseconds();
  struct timespec time = {.tv_sec = IDLE_S};
  nanosleep(&time, NULL);
  int64_t spent = processor_microseconds() - before;
  CHECK_CODE(nexarSuccess, nexarAllReduce(&spent, &spent, 1, nexarInt64, nexarSum, comm, NULL));
  if (rank == 0) printf("%d ranks, %d s: %.3f s\n", n, IDLE_S, (double)spent / 1e6);
  CHECK(spent <= MOST_MICROSECONDS);
}

static void idle_communicators_use_little_processor_time(void) { run_ranks(8, be_idle, NULL); }

static const struct test_case cases[] = {CASE(idle_communicators_use_little_processor_time)};

int main(void) { return RUN(cases); }
