/*
 * Without a CUDA driver calls on host memory work, a CUDA stream is an invalid argument, and the
 * log says why there is no CUDA.
 *
 * The program is not linked with a driver. EXPECTED in the environment is part of the reason: no
 * library, or one that cannot be initialized. With nexar-run some ranks have a driver and others
 * none, and calls are large enough to be cut into pieces if some rank has a device.
 */
#include <dlfcn.h>

#include "support/ranks.h"
#include "support/scratch.h"

enum { SKIPPED = 77, LARGE = (20 << 20) / 4 + 7 /* elements, in several pieces */ };

static uint32_t sent(int rank, size_t i) {
  return (uint32_t)(rank + 1) * 1000003u + (uint32_t)i * 7u;
}

static void call_on_host_memory(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  check_it_works(rank, n, comm);
  size_t wrong = 0;
  uint32_t *send = malloc(LARGE * 4), *recv = malloc(LARGE * 4 * (size_t)n);
  for (size_t i = 0; i < LARGE; i++) send[i] = sent(rank, i);
  CHECK_CODE(nexarSuccess, nexarAllReduce(send, recv, LARGE, nexarUint32, nexarSum, comm, NULL));
  for (size_t i = 0; i < LARGE; i++) {
    uint32_t sum = 0;
    for (int r = 0; r < n; r++) sum += sent(r, i);
    wrong += recv[i] != sum;
  }
  CHECK_CODE(nexarSuccess, nexarAllGather(send, recv, LARGE, nexarUint32, comm, NULL));
  for (int r = 0; r < n; r++)
    for (size_t i = 0; i < LARGE; i++) wrong += recv[(size_t)r * LARGE + i] != sent(r, i);
  CHECK_CODE(nexarSuccess, nexarAllToAll(recv, recv, LARGE, nexarUint32, comm, NULL));
  for (size_t i = 0; i < LARGE; i++) wrong += recv[i] != sent(rank, i);
  CHECK_CODE(nexarSuccess, nexarBroadcast(send, recv, LARGE, nexarUint32, n - 1, comm, NULL));
  for (size_t i = 0; i < LARGE; i++) wrong += recv[i] != sent(n - 1, i);
  CHECK_EQ(0, wrong);
  free(send);
  free(recv);
}
static void calls_on_host_memory_are_right(void) {
  for (int n = 1; n <= 3; n++) run_ranks(n, call_on_host_memory, NULL);
}

static void call_on_host_stream(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  nexarStream_t stream;
  int32_t data = rank;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&stream));
  CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 1, nexarInt32, nexarSum, comm, stream));
  CHECK_CODE(nexarSuccess, nexarStreamSynchronize(stream));
  CHECK_EQ(n * (n - 1) / 2, data);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(stream));
}
static void calls_on_host_streams_are_right(void) {
  for (int n = 1; n <= 3; n++) run_ranks(n, call_on_host_stream, NULL);
}

static void call_on_another_stream(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int32_t data = rank, something = 0;
  void *const streams[] = {&something, (void *)1, (void *)2, (void *)0x7f0012345678};
  for (size_t i = 0; i < COUNT_OF(streams); i++) {
    nexarStream_t stream = streams[i];
    CHECK_CODE(nexarInvalidArgument, nexarBarrier(comm, stream));
    CHECK_TEXT(nexarGetLastError(comm), "stream");
    CHECK_CODE(nexarInvalidArgument,
               nexarAllReduce(&data, &data, 1, nexarInt32, nexarSum, comm, stream));
    CHECK_EQ(rank, data);
  }
  CHECK_CODE(nexarInvalidArgument, nexarStreamSynchronize(&something));
  check_it_works(rank, n, comm);
}
static void a_stream_of_cuda_is_a_wrong_argument_and_changes_nothing(void) {
  if (!can_share_memory()) return; /* ranks are processes, and some may have a driver */
  run_ranks(2, call_on_another_stream, NULL);
}

static void there_is_no_device(void) {
  nexarUniqueId id;
  nexarComm_t comm;
  int device = 5;
  if (!can_share_memory()) return;
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&comm, 1, id, 0));
  CHECK_CODE(nexarSuccess, nexarCommCuDevice(comm, &device));
  CHECK_EQ(-1, device);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static FILE *log_file;

/* Must be the last case. */
static void the_log_says_once_why(void) {
  char line[1000];
  int lines = 0;
  const char *expected = getenv("EXPECTED");
  if (!can_share_memory()) return;
  while (fgets(line, sizeof line, log_file)) {
    if (!strstr(line, "CUDA is not available")) continue;
    lines++;
    CHECK_TEXT(line, expected);
  }
  CHECK_EQ(1, lines);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(calls_on_host_memory_are_right),
      CASE(calls_on_host_streams_are_right),
      CASE(a_stream_of_cuda_is_a_wrong_argument_and_changes_nothing),
      CASE(there_is_no_device),
      CASE(the_log_says_once_why),
  };
  const char *expected = getenv("EXPECTED");
  if (expected && strstr(expected, "was not found") && dlopen("libcuda.so.1", RTLD_NOW)) {
    printf("skipped: this host has a driver\n");
    return SKIPPED;
  }
  if (!getenv("NEXAR_RANK")) {
    char path[SCRATCH_PATH];
    log_file = scratch_file(path);
    setenv("NEXAR_DEBUG", "INFO", 1);
    setenv("NEXAR_DEBUG_FILE", path, 1);
  }
  return RUN(cases);
}
