/*
 * Compares nexarAllReduceBucketed of 400 tensors of 1 to 64 KiB with nexarAllReduce of one buffer
 * of the same size. bench/buckets.sh builds and runs it.
 */
#include <stdint.h>

#include "measure.h"

#define TENSORS 400
#define ROUNDS 15

int main(void) {
  nexarComm_t comm;
  int rank, nranks;
  CHECK(nexarCommInitFromEnv(&comm));
  CHECK(nexarCommUserRank(comm, &rank));
  CHECK(nexarCommCount(comm, &nranks));

  void *tensors[TENSORS];
  size_t counts[TENSORS], total = 0;
  uint32_t dice = 1;
  for (int i = 0; i < TENSORS; i++) {
    dice = dice * 1664525 + 1013904223;
    counts[i] = 256 + (dice >> 8) % (63 * 256 + 1); /* 1 to 64 KiB of float */
    tensors[i] = calloc(counts[i], sizeof(float));
    total += counts[i];
  }
  float *one = calloc(total, sizeof(float));
  if (!one) return 1;

  double bucketed[ROUNDS], whole[ROUNDS], ratios[ROUNDS];
  for (int round = -2; round < ROUNDS; round++) {
    CHECK(nexarBarrier(comm, NULL));
    double start = now_us();
    CHECK(nexarAllReduceBucketed(tensors, counts, TENSORS, nexarFloat32, nexarSum, comm, NULL));
    double middle = now_us();
    CHECK(nexarAllReduce(one, one, total, nexarFloat32, nexarSum, comm, NULL));
    double end = now_us();
    if (round < 0) continue;
    bucketed[round] = middle - start;
    whole[round] = end - middle;
    ratios[round] = bucketed[round] / whole[round];
  }
  if (rank == 0)
    printf("%d ranks, %d tensors of 1 to 64 KiB, %.1f MB: bucketed %.1f ms, one buffer %.1f ms, "
           "ratio %.2f (medians of %d rounds)\n",
           nranks, TENSORS, (double)total * 4 / 1e6, median(bucketed, ROUNDS) / 1e3,
           median(whole, ROUNDS) / 1e3,
           median(ratios, ROUNDS), ROUNDS);
  CHECK(nexarCommDestroy(comm));
  return 0;
}
