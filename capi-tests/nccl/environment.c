/* NCCL's variables in the environment. Ranks are processes of nexar-run. */
#include "nccl_names.h"

static int rank, n;

/* Every rank creates the same id from NCCL_COMM_ID, the address at which rank 0 listens. */
static int join(ncclComm_t *comm) {
  ncclUniqueId id;
  int error = InProgress;
  CHECK_NCCL(Success, ncclGetUniqueId(&id));
  CHECK_NCCL(InProgress, ncclCommInitRankConfig(comm, n, id, rank, NULL));
  while (error == InProgress && ncclCommGetAsyncError(*comm, &error) == Success) continue;
  return error;
}

static void encrypt(const char *key) {
  struct {
    size_t size;
    unsigned magic, version;
    int mode;
    const char *psk;
  } config = {sizeof config, MAGIC, 23203, key != NULL, key};
  CHECK_NCCL(Success, ncclSetEncryption(&config));
}

static void check_that_ranks_join(void) {
  ncclComm_t comm = NULL;
  int x = rank + 1, y = 0;
  CHECK_EQ(Success, join(&comm));
  CHECK_NCCL(Success, ncclAllReduce(&x, &y, 1, Int32, Sum, comm, NULL));
  CHECK_EQ(n * (n + 1) / 2, y);
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void ranks_join_at_nccl_comm_id_without_waiting_for_each_other(void) {
  check_that_ranks_join();
}

/* As in NCCL, only an initialization with a config can be nonblocking. */
static void an_init_without_config_always_waits(void) {
  ncclUniqueId id;
  ncclComm_t comm = NULL;
  CHECK_NCCL(Success, ncclGetUniqueId(&id));
  CHECK_NCCL(Success, ncclCommInitRank(&comm, n, id, rank));
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void ranks_join_with_the_same_key_only(void) {
  ncclComm_t comm = NULL;
  encrypt("the key that all of the ranks have");
  check_that_ranks_join();
  if (n > 1) {
    encrypt(rank ? "the key that the others do not have" : "the key that all of the ranks have");
    CHECK(join(&comm) != Success);
    CHECK_NCCL(Success, ncclCommDestroy(comm));
  }
  encrypt(NULL);
}

static void without_a_gpu_there_is_no_device(void) {
  ncclComm_t comms[2];
  CHECK_NCCL(CudaError, ncclCommInitAll(comms, 2, NULL));
  CHECK_TEXT(ncclGetLastError(NULL), "NEXAR_FAKE_DEVICES");
}

static const struct test_case cases[] = {
    CASE(ranks_join_at_nccl_comm_id_without_waiting_for_each_other),
    CASE(an_init_without_config_always_waits),
    CASE(ranks_join_with_the_same_key_only),
    CASE(without_a_gpu_there_is_no_device),
};

int main(void) {
  setenv("NCCL_COMM_ID", getenv("NEXAR_COMM_ID"), 1);
  setenv("NCCL_COMM_BLOCKING", "0", 1);
  setenv("NCCL_IB_HCA", "mlx5_0", 1);
  setenv("NEXAR_INIT_TIMEOUT_MS", "10000", 1);
  rank = atoi(getenv("NEXAR_RANK"));
  n = atoi(getenv("NEXAR_NRANKS"));
  return RUN(cases);
}
