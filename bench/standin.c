/*
 * The overhead of the stand-in's ncclAllReduce over nexarAllReduce: both libraries in one process,
 * each with a communicator, take turns.
 *
 *     standin
 *
 * Runs with or without nexar-run. Rank 0 prints medians and the median of the ratios of all turns.
 */
#include "measure.h"

enum { TURNS = 101, ITERATIONS = 200, COUNT = 2 };

typedef struct ncclComm *ncclComm_t;
typedef struct { char internal[128]; } ncclUniqueId;
int ncclGetUniqueId(ncclUniqueId *id);
int ncclCommInitRank(ncclComm_t *comm, int nranks, ncclUniqueId id, int rank);
int ncclAllReduce(const void *send, void *recv, size_t count, int type, int op, ncclComm_t comm,
                  void *stream);
int ncclCommDestroy(ncclComm_t comm);

static nexarComm_t native;
static ncclComm_t standin;
static float in[COUNT], out[COUNT];

static void call_native(void) {
  CHECK(nexarAllReduce(in, out, COUNT, nexarFloat32, nexarSum, native, NULL));
}

static void call_standin(void) {
  CHECK(ncclAllReduce(in, out, COUNT, nexarFloat32, nexarSum, standin, NULL));
}

static double turn(void (*call)(void)) {
  double begin = now_us();
  for (int i = 0; i < ITERATIONS; i++) call();
  return (now_us() - begin) / ITERATIONS;
}

int main(void) {
  static double times[2][TURNS], ratios[TURNS];
  int rank, size;
  ncclUniqueId id;
  nexarUniqueId native_id;
  nexarComm_t job;
  CHECK(nexarCommInitFromEnv(&job));
  CHECK(nexarCommUserRank(job, &rank));
  CHECK(nexarCommCount(job, &size));
  CHECK(nexarGetUniqueId(&native_id));
  CHECK(ncclGetUniqueId(&id));
  CHECK(nexarBcast(&native_id, sizeof native_id, nexarInt8, 0, job, NULL));
  CHECK(nexarBcast(&id, sizeof id, nexarInt8, 0, job, NULL));
  CHECK(nexarCommDestroy(job));
  CHECK(nexarCommInitRank(&native, size, native_id, rank));
  CHECK(ncclCommInitRank(&standin, size, id, rank));
  for (int i = -5; i < TURNS; i++) {
    /* The order of the two alternates too. */
    double first = turn(i % 2 ? call_standin : call_native);
    double second = turn(i % 2 ? call_native : call_standin);
    if (i < 0) continue;
    times[0][i] = i % 2 ? second : first;
    times[1][i] = i % 2 ? first : second;
    ratios[i] = times[1][i] / times[0][i];
  }
  if (rank == 0)
    printf("%d ranks, 8 bytes: nexarAllReduce %.2f us, ncclAllReduce %.2f us, ratio %.3f\n", size,
           median(times[0], TURNS), median(times[1], TURNS), median(ratios, TURNS));
  CHECK(ncclCommDestroy(standin));
  CHECK(nexarCommDestroy(native));
  return 0;
}
