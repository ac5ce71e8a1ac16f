/*
 * A message of 1 GiB whose receive is posted two seconds late: neither the sender's nor the
 * receiver's process buffers it.
 */
#define _GNU_SOURCE
#include <sys/resource.h>
#include <time.h>

#include "support/ranks.h"

enum { LATE_S = 2, MOST_KIB = 64 << 10 };

static const size_t bytes = (size_t)1 << 30;

static long peak_kib(void) {
  struct rusage usage;
  CHECK_EQ(0, getrusage(RUSAGE_SELF, &usage));
  return usage.ru_maxrss;
}

static unsigned char byte_number(size_t i) { return (unsigned char)(i * 31 + (i >> 12)); }

static void send_or_receive_late(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  unsigned char *data = malloc(bytes);
  for (size_t i = 0; i < bytes; i++) data[i] = rank == 0 ? byte_number(i) : 0xaa;
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  long before = peak_kib();
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarSend(data, bytes, nexarUint8, 1, comm, NULL));
  } else {
    nanosleep(&(struct timespec){.tv_sec = LATE_S}, NULL);
    CHECK_CODE(nexarSuccess, nexarRecv(data, bytes, nexarUint8, 0, comm, NULL));
    size_t wrong = 0;
    for (size_t i = 0; i < bytes; i++) wrong += data[i] != byte_number(i);
    CHECK_EQ(0, wrong);
  }
  long more = peak_kib() - before;
  printf("rank %d grew by %ld KiB\n", rank, more);
  CHECK(more < MOST_KIB);
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  free(data);
}

static void a_late_receiver_costs_no_memory(void) { run_ranks(2, send_or_receive_late, NULL); }

static const struct test_case cases[] = {CASE(a_late_receiver_costs_no_memory)};

int main(void) { return RUN(cases); }
