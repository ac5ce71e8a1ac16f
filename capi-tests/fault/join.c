/*
 * A rank that joins as its environment says and prints one line: the time in nanoseconds of
 * CLOCK_MONOTONIC, the code and the text of its error, or of the all-reduce that shows that it is in.
 * It stays until it is killed, because others may still have to learn from it why there will be no
 * communicator; or for two minutes.
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
