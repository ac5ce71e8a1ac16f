/*
 * A rank that joins by nexarCommInitFromEnv and prints one line: the time in nanoseconds of
 * CLOCK_MONOTONIC, and the code and text of its error or of its first all-reduce. Then it waits to
 * be killed, for two minutes at most, because other ranks may still learn from it why the join
 * failed.
 */
#include <stdio.h>
#include <unistd.h>

#include <nexar.h>

#include "clock.h"

int main(void) {
  alarm(120);
  nexarComm_t comm = NULL;
  int one = 1, sum = 0, size = 0;
  nexarResult_t result = nexarCommInitFromEnv(&comm);
  if (result == nexarSuccess) {
    nexarCommCount(comm, &size);
    result = nexarAllReduce(&one, &sum, 1, nexarInt32, nexarSum, comm, NULL);
  }
  const char *text = result == nexarSuccess ? "is in" : nexarGetLastError(comm);
  printf("%lld %d %s\n", now_ns(), (int)result, sum == size ? text : "wrong sum");
  fflush(stdout);
  for (;;) pause();
}
