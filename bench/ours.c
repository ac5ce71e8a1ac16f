/*
 * Measures nexarAllReduce: float32, sum, in place.
 *
 *     ours <bytes>:<warm-up>:<batches>:<iterations> ...
 *
 * Joins the communicator the environment describes (NEXAR_RANK, NEXAR_NRANKS, NEXAR_COMM_ID,
 * NEXAR_COMM_SECRET). Rank 0 prints `bytes microseconds` for each size: the median over the batches
 * of the mean of a batch's iterations. peer-nexar/src/main.rs measures the same way.
 */
#include "measure.h"

static void all_reduce(float *buffer, size_t count, nexarComm_t comm) {
  CHECK(nexarAllReduce(buffer, buffer, count, nexarFloat32, nexarSum, comm, NULL));
}

int main(int argc, char **argv) {
  nexarComm_t comm;
  int rank, nranks;
  CHECK(nexarCommInitFromEnv(&comm));
  CHECK(nexarCommUserRank(comm, &rank));
  CHECK(nexarCommCount(comm, &nranks));

  for (int plan = 1; plan < argc; plan++) {
    size_t bytes, warm_up, batches, iterations;
    if (sscanf(argv[plan], "%zu:%zu:%zu:%zu", &bytes, &warm_up, &batches, &iterations) != 4 ||
        batches == 0 || iterations == 0) {
      fprintf(stderr, "not bytes:warm-up:batches:iterations: %s\n", argv[plan]);
      return 1;
    }
    size_t count = bytes / sizeof(float);
    float *buffer = malloc(bytes);
    double *times = malloc(batches * sizeof *times);
    if (buffer == NULL || times == NULL) {
      perror("malloc");
      return 1;
    }

    for (size_t i = 0; i < count; i++) buffer[i] = 1;
    all_reduce(buffer, count, comm);
    for (size_t i = 0; i < count; i++) {
      if (buffer[i] != (float)nranks) {
        fprintf(stderr, "a sum of %zu bytes is wrong\n", bytes);
        return 1;
      }
      /* Zeros stay zeros, however often they are added up. */
      buffer[i] = 0;
    }

    for (size_t i = 0; i < warm_up; i++) all_reduce(buffer, count, comm);
    for (size_t batch = 0; batch < batches; batch++) {
      double begin = now_us();
      for (size_t i = 0; i < iterations; i++) all_reduce(buffer, count, comm);
      times[batch] = (now_us() - begin) / (double)iterations;
    }
    if (rank == 0) printf("%zu %.2f\n", bytes, median(times, batches));
    free(times);
    free(buffer);
  }
  CHECK(nexarCommDestroy(comm));
  return 0;
}
