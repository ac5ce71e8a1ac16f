/*
 * A typical NCCL program, compiled with NVIDIA's nccl.h: four processes share an id through a file,
 * create a communicator with a config, reduce, split, exchange in a ring and use premultiplied
 * sums; then one is killed and the others abort.
 *
 *     program FILE            starts itself four times and checks the exit codes
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include <cuda_runtime.h>
#include <nccl.h>

enum { RANKS = 4, VICTIM = 3, COUNT = 100003 };

static int rank;

static void fail(const char *what, int line, ncclResult_t result) {
  fprintf(stderr, "rank %d, line %d: %s: %s\n    %s\n", rank, line, what,
          ncclGetErrorString(result), ncclGetLastError(NULL));
  exit(1);
}

#define NCCL(call)                                                                                 \
  do {                                                                                             \
    ncclResult_t result_ = (call);                                                                 \
    if (result_ != ncclSuccess) fail(#call, __LINE__, result_);                                    \
  } while (0)

#define CHECK(condition)                                                                           \
  do {                                                                                             \
    if (!(condition)) fail(#condition, __LINE__, ncclSuccess);                                     \
  } while (0)

#define CUDA(call) CHECK((call) == cudaSuccess)

/* Rank 0 writes the id; the others wait for the file, bounded by the alarm. */
static ncclUniqueId share_id(const char *path) {
  ncclUniqueId id;
  char unfinished[1000];
  snprintf(unfinished, sizeof unfinished, "%s.part", path);
  if (rank == 0) {
    NCCL(ncclGetUniqueId(&id));
    FILE *file = fopen(unfinished, "wb");
    CHECK(file && fwrite(&id, sizeof id, 1, file) == 1 && fclose(file) == 0);
    CHECK(rename(unfinished, path) == 0);
    return id;
  }
  FILE *file;
  while (!(file = fopen(path, "rb"))) nanosleep(&(struct timespec){0, 1000000}, NULL);
  CHECK(fread(&id, sizeof id, 1, file) == 1);
  fclose(file);
  return id;
}

static void reduce(ncclComm_t comm, float *device, cudaStream_t stream) {
  static float host[COUNT];
  for (int i = 0; i < COUNT; i++) host[i] = (float)(rank + i % 100);
  CUDA(cudaMemcpy(device, host, sizeof host, cudaMemcpyHostToDevice));
  NCCL(ncclAllReduce(device, device, COUNT, ncclFloat, ncclSum, comm, stream));
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaMemcpy(host, device, sizeof host, cudaMemcpyDeviceToHost));
  for (int i = 0; i < COUNT; i++) CHECK(host[i] == (float)(6 + 4 * (i % 100)));
}

static void scale_while_summing(ncclComm_t comm, float *device, cudaStream_t stream) {
  float factor = 0.5f * (float)(rank + 1), one = 1, sum = 0;
  ncclRedOp_t scaled;
  NCCL(ncclRedOpCreatePreMulSum(&scaled, &factor, ncclFloat, ncclScalarHostImmediate, comm));
  CUDA(cudaMemcpy(device, &one, sizeof one, cudaMemcpyHostToDevice));
  NCCL(ncclAllReduce(device, device, 1, ncclFloat, scaled, comm, stream));
  NCCL(ncclRedOpDestroy(scaled, comm));
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaMemcpy(&sum, device, sizeof sum, cudaMemcpyDeviceToHost));
  CHECK(sum == 5); /* 0.5 + 1 + 1.5 + 2 */
}

static void pass_around_the_ring(ncclComm_t comm, float *device, cudaStream_t stream) {
  float *received = device + COUNT;
  float mine = (float)(100 + rank), theirs = 0;
  CUDA(cudaMemcpy(device, &mine, sizeof mine, cudaMemcpyHostToDevice));
  NCCL(ncclGroupStart());
  NCCL(ncclSend(device, 1, ncclFloat, (rank + 1) % RANKS, comm, stream));
  NCCL(ncclRecv(received, 1, ncclFloat, (rank + RANKS - 1) % RANKS, comm, stream));
  NCCL(ncclGroupEnd());
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaMemcpy(&theirs, received, sizeof theirs, cudaMemcpyDeviceToHost));
  CHECK(theirs == (float)(100 + (rank + RANKS - 1) % RANKS));
}

static void split_into_even_and_odd(ncclComm_t comm, float *device, cudaStream_t stream) {
  ncclComm_t half, none;
  int size, place;
  float value = (float)rank;
  NCCL(ncclCommSplit(comm, rank % 2, -rank, &half, NULL));
  NCCL(ncclCommCount(half, &size));
  NCCL(ncclCommUserRank(half, &place));
  CHECK(size == 2 && place == (rank < 2)); /* the higher rank has the lower key */
  CUDA(cudaMemcpy(device, &value, sizeof value, cudaMemcpyHostToDevice));
  NCCL(ncclAllReduce(device, device, 1, ncclFloat, ncclMax, half, stream));
  CUDA(cudaStreamSynchronize(stream));
  CUDA(cudaMemcpy(&value, device, sizeof value, cudaMemcpyDeviceToHost));
  CHECK(value == (float)(2 + rank % 2));
  NCCL(ncclCommSplit(comm, rank ? 1 : NCCL_SPLIT_NOCOLOR, 0, &none, NULL));
  CHECK((none == NULL) == (rank == 0));
  NCCL(ncclCommDestroy(none));
  NCCL(ncclCommDestroy(half));
}

/* The victim dies after every other rank has entered the last all-reduce: the split before it would
   report the death otherwise. */
static void outlive_a_killed_peer(ncclComm_t comm, float *device, cudaStream_t stream) {
  reduce(comm, device, stream);
  if (rank == VICTIM) raise(SIGKILL);
  ncclResult_t result = ncclAllReduce(device, device, 1, ncclFloat, ncclSum, comm, stream);
  CHECK(result == ncclRemoteError);
  CHECK(strstr(ncclGetLastError(comm), "rank 3"));
  ncclResult_t found;
  NCCL(ncclCommGetAsyncError(comm, &found));
  CHECK(found == ncclRemoteError);
  NCCL(ncclCommAbort(comm));
}

static int run(const char *path) {
  int version, count, place;
  ncclComm_t comm;
  cudaStream_t stream;
  float *device;
  alarm(100);
  NCCL(ncclGetVersion(&version));
  CHECK(version >= NCCL_VERSION(2, 30, 0));
  CUDA(cudaSetDevice(rank));
  CUDA(cudaStreamCreate(&stream));
  CUDA(cudaMalloc((void **)&device, 2 * COUNT * sizeof *device));

  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  config.minCTAs = 4;
  config.maxCTAs = 8;
  config.commName = "program";
  ncclResult_t state = ncclCommInitRankConfig(&comm, RANKS, share_id(path), rank, &config);
  while (state == ncclInProgress) NCCL(ncclCommGetAsyncError(comm, &state));
  if (state != ncclSuccess) fail("init", __LINE__, state);
  NCCL(ncclCommCount(comm, &count));
  NCCL(ncclCommUserRank(comm, &place));
  CHECK(count == RANKS && place == rank);

  reduce(comm, device, stream);
  scale_while_summing(comm, device, stream);
  pass_around_the_ring(comm, device, stream);
  split_into_even_and_odd(comm, device, stream);
  outlive_a_killed_peer(comm, device, stream);
  CUDA(cudaFree(device));
  CUDA(cudaStreamDestroy(stream));
  return 0;
}

int main(int argc, char **argv) {
  if (argc == 3) {
    rank = atoi(argv[2]);
    return run(argv[1]);
  }
  pid_t ranks[RANKS];
  for (int i = 0; i < RANKS; i++) {
    char number[12];
    snprintf(number, sizeof number, "%d", i);
    ranks[i] = fork();
    if (ranks[i] == 0) {
      execl(argv[0], argv[0], argv[1], number, (char *)NULL);
      _exit(127);
    }
  }
  int wrong = 0;
  for (int i = 0; i < RANKS; i++) {
    int status;
    waitpid(ranks[i], &status, 0);
    int as_expected = i == VICTIM ? WIFSIGNALED(status) && WTERMSIG(status) == SIGKILL
                                  : WIFEXITED(status) && WEXITSTATUS(status) == 0;
    if (!as_expected) fprintf(stderr, "rank %d ended with status %#x\n", i, (unsigned)status);
    wrong += !as_expected;
  }
  if (!wrong) printf("three ranks have completed everything and outlived the fourth\n");
  return wrong != 0;
}
