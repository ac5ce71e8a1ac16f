/*
 * A rank of nexar for faults.py, which describes the output:
 *
 *     ours CASE COUNT leave|stay
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>
#include <unistd.h>

#include <nexar.h>

static int rank, size, stay;
static nexarComm_t comm;

static long long now_ns(void) {
  struct timespec time;
  clock_gettime(CLOCK_MONOTONIC, &time);
  return time.tv_sec * 1000000000LL + time.tv_nsec;
}

static int end(int code, const char *text) {
  printf("%lld %d %s\n", now_ns(), code, text);
  fflush(stdout);
  if (stay) sleep(600);
  nexarCommAbort(comm);
  return 0;
}

static int fail(nexarResult_t result) { return end((int)result, nexarGetLastError(comm)); }

static void fill(void *buffer, nexarDataType_t type, size_t count) {
  for (size_t i = 0; i < count; i++) {
    if (type == nexarInt32) ((int *)buffer)[i] = rank + 1;
    if (type == nexarFloat32) ((float *)buffer)[i] = (float)(rank + 1);
  }
}

static int are_all(const void *buffer, nexarDataType_t type, size_t count, int expected) {
  for (size_t i = 0; i < count; i++) {
    if (type == nexarInt32 && ((const int *)buffer)[i] != expected) return 0;
    if (type == nexarFloat32 && ((const float *)buffer)[i] != (float)expected) return 0;
  }
  return 1;
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  const char *fault = argv[1];
  size_t count = (size_t)atoll(argv[2]);
  stay = strcmp(argv[3], "stay") == 0;
  nexarResult_t result = nexarCommInitFromEnv(&comm);
  if (result != nexarSuccess) return fail(result);
  nexarCommUserRank(comm, &rank);
  nexarCommCount(comm, &size);
  void *sent = calloc(2 * count, 4), *received = calloc(2 * count, 4);
  if (!sent || !received) return 2;

  int sum = size * (size + 1) / 2;
  fill(sent, nexarInt32, count);
  for (long turn = 0; turn == 0 || strcmp(fault, "none") == 0; turn++) {
    result = nexarAllReduce(sent, received, count, nexarInt32, nexarSum, comm, NULL);
    if (result == nexarSuccess && turn == 0) result = nexarBarrier(comm, NULL);
    if (result != nexarSuccess) return fail(result);
    if (!are_all(received, nexarInt32, count, sum)) return end(-1, "wrong numbers");
    if (turn == 0) {
      printf("ready %lld\n", now_ns());
      fflush(stdout);
    }
  }

  nexarDataType_t type = nexarInt32;
  nexarRedOp_t op = nexarSum;
  int root = 0;
  if (rank == 1) {
    if (strcmp(fault, "fewer") == 0) count -= count / 10;
    if (strcmp(fault, "more") == 0) count += count / 10;
    if (strcmp(fault, "type") == 0) type = nexarFloat32;
    if (strcmp(fault, "operator") == 0) op = nexarMax;
  }
  if (rank == 0 && strcmp(fault, "root") == 0) root = 1;
  fill(sent, type, count);
  int expected;
  if (strcmp(fault, "root") == 0) {
    expected = root + 1;
    result = nexarBroadcast(sent, received, count, type, root, comm, NULL);
  } else {
    expected = op == nexarSum ? sum : size;
    result = nexarAllReduce(sent, received, count, type, op, comm, NULL);
  }
  if (result != nexarSuccess) return fail(result);
  return end(0, are_all(received, type, count, expected) ? "right numbers" : "wrong numbers");
}
