/* The semantics that NCCL programs rely on, for valid and invalid calls. */
#include <pthread.h>

#include "nccl_names.h"

static void the_version_is_2_30_7(void) {
  int version = 0, twin = 0;
  CHECK_NCCL(Success, ncclGetVersion(&version));
  CHECK_NCCL(Success, pncclGetVersion(&twin));
  CHECK_EQ(23007, version);
  CHECK_EQ(version, twin);
  CHECK_NCCL(InvalidArgument, ncclGetVersion(NULL));
}

static void error_strings_equal_those_of_nccl(void) {
  static const char *const texts[] = {
      "no error",
      "unhandled cuda error (run with NCCL_DEBUG=INFO for details)",
      "unhandled system error (run with NCCL_DEBUG=INFO for details)",
      "internal error - please report this issue to the NCCL developers",
      "invalid argument (run with NCCL_DEBUG=WARN for details)",
      "invalid usage (run with NCCL_DEBUG=WARN for details)",
      "remote process exited or there was a network error",
      "NCCL operation in progress",
      "timeout",
      "unknown result code",
  };
  for (size_t i = 0; i < COUNT_OF(texts); i++)
    CHECK_EQ(0, strcmp(texts[i], ncclGetErrorString((int)i)));
  CHECK_EQ(0, strcmp("unknown result code", ncclGetErrorString(-1)));
}

static void destroys_accept_null_and_finalize_succeeds_once(void) {
  CHECK_NCCL(Success, ncclCommFinalize(NULL));
  CHECK_NCCL(Success, ncclCommDestroy(NULL));
  CHECK_NCCL(Success, ncclCommAbort(NULL));
  ncclComm_t comm = alone();
  CHECK_NCCL(Success, ncclCommFinalize(comm));
  CHECK_NCCL(InvalidArgument, ncclCommFinalize(comm));
  CHECK_NCCL(Success, ncclCommDestroy(comm));
  CHECK_NCCL(InvalidArgument, ncclCommDestroy(comm));
}

static void wrong_arguments_give_code_4_and_texts_with_nccl_names(void) {
  ncclComm_t comm = alone();
  float x = 1, y = 0;
  CHECK_NCCL(InvalidArgument, ncclAllReduce(&x, &y, 1, Float32, Sum, NULL, NULL));
  CHECK_TEXT(ncclGetLastError(NULL), "ncclAllReduce: ");
  CHECK_NCCL(InvalidArgument, ncclAllReduce(&x, &y, 1, 12, Sum, comm, NULL));
  CHECK_TEXT(ncclGetLastError(comm), "ncclAllReduce: datatype 12 is not a ncclDataType_t");
  CHECK_NCCL(InvalidArgument, ncclAllReduce(&x, &y, 1, Float32, 5, comm, NULL));
  /* Types and operators of nexar that NCCL does not have. */
  CHECK_NCCL(InvalidArgument, ncclAllReduce(&x, &y, 1, nexarInt16, Sum, comm, NULL));
  CHECK_NCCL(InvalidArgument, ncclAllReduce(&x, &y, 1, Int32, nexarBitAnd, comm, NULL));
  CHECK_NCCL(InvalidArgument, ncclGather(&x, &y, 1, Float32, 1, comm, NULL));
  CHECK_NCCL(InvalidArgument, ncclAlltoAll(NULL, &y, 1, Float32, comm, NULL));
  CHECK_TEXT(ncclGetLastError(NULL), "ncclAlltoAll: ");
  CHECK_NCCL(InvalidArgument, ncclCommCount(comm, NULL));
  CHECK_NCCL(InvalidArgument, ncclGetUniqueId(NULL));
  CHECK_NCCL(Success, pncclAllReduce(&x, &y, 1, Float32, Sum, comm, NULL));
  CHECK_EQ(1, y);
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void the_last_error_is_shared_by_threads_and_stays(void) {
  CHECK_NCCL(InvalidArgument, ncclGetVersion(NULL));
  CHECK_TEXT(ncclGetLastError(NULL), "ncclGetVersion: version is NULL");
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(Success, ncclGroupEnd());
  CHECK_TEXT(ncclGetLastError(NULL), "ncclGetVersion: version is NULL");
}

static void a_call_on_a_foreign_stream_is_synchronous(void) {
  ncclComm_t comm = alone();
  int foreign, x = 5, y = 0;
  CHECK_NCCL(Success, ncclAllReduce(&x, &y, 1, Int32, Sum, comm, &foreign));
  CHECK_EQ(5, y);
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void a_group_ends_once_and_its_end_fails_after_a_failed_call(void) {
  CHECK_NCCL(InvalidUsage, ncclGroupEnd());
  ncclComm_t comm = alone();
  int x = 5, y = 0;
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(Success, ncclAllReduce(&x, &y, 1, Int32, Sum, comm, NULL));
  CHECK_NCCL(Success, ncclGroupEnd());
  CHECK_EQ(0, y);
  CHECK_NCCL(Success, ncclGroupEnd());
  CHECK_EQ(5, y);

  y = 0;
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(Success, ncclAllReduce(&x, &y, 1, Int32, Sum, comm, NULL));
  CHECK_NCCL(InvalidArgument, ncclAllReduce(&x, &y, 1, Int32, 77, comm, NULL));
  CHECK_NCCL(InvalidArgument, ncclGroupEnd());
  CHECK_EQ(0, y);

  /* A refused call that is not an operation does not affect the group. */
  int32_t number;
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(Success, ncclAllReduce(&x, &y, 1, Int32, Sum, comm, NULL));
  CHECK_NCCL(InvalidArgument, ncclGetVersion(NULL));
  CHECK_NCCL(InvalidUsage, ncclParamGetI32(NULL, &number));
  CHECK_NCCL(Success, ncclGroupEnd());
  CHECK_EQ(5, y);
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

struct simulation {
  size_t size;
  unsigned magic, version;
  float estimatedTime;
};

static void a_simulated_group_does_nothing(void) {
  struct simulation info = {sizeof info, 0x74685283, 23007, -1};
  ncclComm_t comm = alone();
  int x = 5, y = 0;
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(Success, ncclAllReduce(&x, &y, 1, Int32, Sum, comm, NULL));
  CHECK_NCCL(Success, ncclGroupSimulateEnd(&info));
  CHECK_EQ(0, y);
  CHECK_NCCL(InvalidUsage, ncclGroupEnd());
  CHECK_NCCL(InvalidUsage, ncclGroupSimulateEnd(&info));
  /* The outermost end ends the simulation even if its argument is invalid; inner ends ignore it. */
  info.magic = 0;
  CHECK_NCCL(InvalidUsage, ncclGroupSimulateEnd(&info));
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(InvalidArgument, ncclGroupSimulateEnd(&info));
  CHECK_NCCL(InvalidUsage, ncclGroupEnd());
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(Success, ncclGroupSimulateEnd(&info));
  CHECK_NCCL(Success, ncclGroupEnd());
  CHECK_NCCL(Success, ncclAllReduce(&x, &y, 1, Int32, Sum, comm, NULL));
  CHECK_EQ(5, y);
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

/* NEXAR_FAKE_DEVICES=4 is set for this test. */
static void one_thread_drives_four_devices_in_groups(void) {
  enum { N = 4 };
  ncclComm_t comms[N];
  int sent[N][N], received[N][N], twice[2] = {1, 1}, beyond[2] = {0, 4};
  CHECK_NCCL(Success, ncclCommInitAll(comms, N, NULL));
  for (int i = 0; i < N; i++) {
    int rank, device;
    CHECK_NCCL(Success, ncclCommUserRank(comms[i], &rank));
    CHECK_NCCL(Success, ncclCommCuDevice(comms[i], &device));
    CHECK_EQ(i, rank);
    CHECK_EQ(i, device);
    for (int j = 0; j < N; j++) sent[i][j] = 10 * i + j;
  }
  CHECK_NCCL(Success, ncclGroupStart());
  for (int i = 0; i < N; i++)
    CHECK_NCCL(Success, ncclAlltoAll(sent[i], received[i], 1, Int32, comms[i], NULL));
  CHECK_NCCL(Success, ncclGroupEnd());
  for (int i = 0; i < N; i++)
    for (int j = 0; j < N; j++) CHECK_EQ(10 * j + i, received[i][j]);

  CHECK_NCCL(Success, ncclGroupStart());
  for (int i = 0; i < N; i++)
    CHECK_NCCL(Success, ncclScatter(sent[i], &received[i][0], 1, Int32, 2, comms[i], NULL));
  CHECK_NCCL(Success, ncclGroupEnd());
  for (int i = 0; i < N; i++) CHECK_EQ(20 + i, received[i][0]);

  CHECK_NCCL(Success, ncclGroupStart());
  for (int i = 0; i < N; i++) CHECK_NCCL(Success, ncclCommDestroy(comms[i]));
  CHECK_NCCL(Success, ncclGroupEnd());
  CHECK_NCCL(InvalidArgument, ncclCommInitAll(comms, 5, NULL));
  CHECK_NCCL(InvalidArgument, ncclCommInitAll(comms, 2, beyond));
  CHECK_NCCL(InvalidArgument, ncclCommInitAll(comms, -1, NULL));
  CHECK_NCCL(InvalidUsage, ncclCommInitAll(comms, 2, twice));
}

static void a_split_without_color_gives_null(void) {
  ncclComm_t comm = alone(), part = comm;
  CHECK_NCCL(Success, ncclCommSplit(comm, -1, 0, &part, NULL));
  CHECK(part == NULL);
  CHECK_NCCL(Success, ncclCommSplit(comm, 3, 0, &part, NULL));
  int count = 0;
  CHECK_NCCL(Success, ncclCommCount(part, &count));
  CHECK_EQ(1, count);
  CHECK_NCCL(Success, ncclCommDestroy(part));
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void a_failed_init_leaves_null(void) {
  ncclUniqueId id;
  memset(&id, 7, sizeof id);
  ncclComm_t comm = (ncclComm_t)&id;
  CHECK_NCCL(InvalidArgument, ncclCommInitRank(&comm, 1, id, 0));
  CHECK(comm == NULL);
  comm = (ncclComm_t)&id;
  CHECK_NCCL(InvalidArgument, ncclCommInitRankConfig(&comm, 1, id, 0, NULL));
  CHECK(comm == NULL);
}

static ncclComm_t waiting;

static void *abort_it(void *unused) {
  CHECK_NCCL(Success, ncclCommAbort(waiting));
  return unused;
}

/* One of two ranks joins. The abort may come before or after the end, with the same result. */
static void an_init_at_the_end_of_a_group_can_be_aborted(void) {
  ncclUniqueId id;
  pthread_t thread;
  CHECK_NCCL(Success, ncclGetUniqueId(&id));
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(Success, ncclCommInitRank(&waiting, 2, id, 0));
  CHECK_EQ(0, pthread_create(&thread, NULL, abort_it, NULL));
  CHECK_NCCL(InvalidUsage, ncclGroupEnd());
  pthread_join(thread, NULL);
}

static void the_first_of_several_ids_is_used(void) {
  ncclUniqueId ids[2];
  ncclComm_t comm = NULL;
  CHECK_NCCL(Success, ncclGetUniqueId(&ids[0]));
  CHECK_NCCL(Success, ncclGetUniqueId(&ids[1]));
  CHECK_NCCL(InvalidArgument, ncclCommInitRankScalable(&comm, 1, 0, 2, ids, NULL));
  CHECK_NCCL(InvalidArgument, ncclCommInitRankScalable(&comm, 1, 0, 0, ids, NULL));
  CHECK_NCCL(InvalidArgument, ncclCommInitRankScalable(&comm, 1, 0, 1, NULL, NULL));
  CHECK_NCCL(Success, ncclCommInitRankScalable(&comm, 1, 0, 1, ids, NULL));
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void windows_keep_their_address_until_deregistered(void) {
  ncclComm_t comm = alone(), other = alone();
  ncclWindow_t window = NULL;
  void *memory = NULL, *found = NULL, *handle = NULL;
  CHECK_NCCL(Success, ncclMemAlloc(&memory, 1 << 20));
  CHECK_NCCL(Success, ncclCommRegister(comm, memory, 1 << 20, &handle));
  CHECK_NCCL(Success, ncclCommWindowRegister(comm, memory, 1 << 20, &window, 1));
  CHECK_NCCL(InvalidArgument, ncclCommWindowRegister(comm, memory, 1 << 20, &window, 0x100));
  CHECK_NCCL(InvalidArgument, ncclCommWindowRegister(comm, memory, 1 << 20, NULL, 0));
  CHECK_NCCL(Success, ncclWinGetUserPtr(comm, window, &found));
  CHECK(found == memory);
  CHECK_NCCL(InvalidArgument, ncclCommWindowRegister(comm, NULL, 8, &window, 0));
  CHECK_TEXT(ncclGetLastError(NULL), "ncclCommWindowRegister: buff is NULL");
  CHECK_NCCL(InvalidArgument, ncclWinGetUserPtr(other, window, &found));
  CHECK_NCCL(InvalidArgument, ncclCommWindowDeregister(other, window));
  CHECK_NCCL(Success, ncclCommWindowDeregister(comm, window));
  CHECK_NCCL(InvalidArgument, ncclCommWindowDeregister(comm, window));
  CHECK_NCCL(InvalidArgument, ncclWinGetUserPtr(comm, window, &found));
  CHECK_NCCL(Success, ncclCommWindowDeregister(comm, NULL));
  CHECK_NCCL(Success, ncclCommDeregister(comm, handle));
  CHECK_NCCL(Success, ncclMemFree(memory));
  CHECK_NCCL(Success, ncclCommDestroy(other));
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void properties_fill_the_size_of_the_callers_structure(void) {
  struct {
    size_t size;
    unsigned magic, version;
    int rank, nRanks, cudaDev, nvmlDev;
    unsigned char rest[120];
  } properties;
  ncclComm_t comm = alone();
  memset(&properties, 0x5a, sizeof properties);
  properties.size = offsetof(__typeof__(properties), rest) + 40;
  properties.magic = MAGIC;
  properties.version = 22902;
  CHECK_NCCL(Success, ncclCommQueryProperties(comm, &properties));
  CHECK_EQ(0, properties.rank);
  CHECK_EQ(1, properties.nRanks);
  CHECK_EQ(0, properties.rest[0]);
  CHECK_EQ(0, properties.rest[39]);
  CHECK_EQ(0x5a, properties.rest[40]);
  properties.magic = 0;
  CHECK_NCCL(InvalidArgument, ncclCommQueryProperties(comm, &properties));
  CHECK_NCCL(InvalidArgument, ncclCommQueryProperties(comm, NULL));
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void suspending_frees_nothing(void) {
  ncclComm_t comm = alone();
  uint64_t value = 7;
  CHECK_NCCL(Success, ncclCommSuspend(comm, 1));
  CHECK_NCCL(Success, ncclCommResume(comm));
  CHECK_NCCL(InvalidArgument, ncclCommSuspend(comm, 2));
  for (int stat = 0; stat < 4; stat++) {
    CHECK_NCCL(Success, ncclCommMemStats(comm, stat, &value));
    CHECK_EQ(0, value);
  }
  CHECK_NCCL(InvalidArgument, ncclCommMemStats(comm, 4, &value));
  CHECK_NCCL(InvalidArgument, ncclCommMemStats(comm, 0, NULL));
  CHECK_NCCL(Success, ncclCommDestroy(comm));
  CHECK_NCCL(InvalidArgument, ncclCommSuspend(comm, 1));
}

struct option {
  struct option *next;
  int vendor, id;
  union { int i; void *p; } value;
};

struct call_config {
  size_t size;
  unsigned magic, version;
  struct option *ext;
  int minCTAs, maxCTAs, nvlsCTAs, cgaClusterSize;
  const char *algSelection;
  int forceAlgSelection, CTAPolicy;
  uint64_t userProfilerTag;
  void *launchCompletionEvent;
};

static void a_config_of_one_call_is_checked_and_unknown_options_are_ignored(void) {
  struct option second = {NULL, 0xffffff, 2, {2}}, first = {&second, 0, 1, {1}};
  const struct call_config good = {sizeof good, MAGIC, 23203, &first, UNDEF, UNDEF, UNDEF,
                                   UNDEF,       NULL,  1,     UNDEF,  0,     NULL};
  ncclComm_t comm = alone();
  int x = 5, y = 0;
#define CALL(config) ncclAllReduceConfig(&x, &y, 1, Int32, Sum, comm, NULL, config)
  CHECK_NCCL(Success, CALL(NULL));
  CHECK_NCCL(Success, CALL(&good));
  CHECK_EQ(5, y);
  struct call_config older = good; /* 2.31 has no event: the bytes there are not part of it */
  older.size = 64;
  older.version = 23102;
  older.launchCompletionEvent = &x;
  CHECK_NCCL(Success, CALL(&older));

  struct call_config wrong = good;
  wrong.magic = 0;
  CHECK_NCCL(InvalidArgument, CALL(&wrong));
  wrong = good;
  wrong.minCTAs = 0;
  CHECK_NCCL(InvalidArgument, CALL(&wrong));
  wrong = good;
  wrong.launchCompletionEvent = &x;
  CHECK_NCCL(InvalidUsage, CALL(&wrong));
  wrong = good;
  second.next = &first;
  CHECK_NCCL(InvalidArgument, CALL(&wrong));
  CHECK_TEXT(ncclGetLastError(NULL), "circular");
  second.next = NULL;
  second.vendor = 1 << 24;
  CHECK_NCCL(InvalidArgument, CALL(&wrong));
  /* A config refused inside a group also fails the end of the group. */
  CHECK_NCCL(Success, ncclGroupStart());
  CHECK_NCCL(InvalidArgument, CALL(&wrong));
  CHECK_NCCL(InvalidArgument, ncclGroupEnd());
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void unsupported_functions_report_it(void) {
  ncclComm_t comm = alone(), made = NULL;
  ncclUniqueId id;
  int excluded[1] = {0};
  int32_t number;
  CHECK_NCCL(InvalidUsage, ncclCommRevoke(comm, 0));
  CHECK_TEXT(ncclGetLastError(comm), "ncclCommRevoke: nexar cannot do that yet");
  CHECK_NCCL(InvalidUsage, ncclCommShrink(comm, excluded, 1, &made, NULL, 0));
  CHECK_NCCL(InvalidUsage, ncclCommGetUniqueId(comm, &id));
  CHECK_NCCL(InvalidUsage, ncclCommGrow(comm, 2, NULL, -1, &made, NULL));
  CHECK_NCCL(Success, ncclCommRevoke(NULL, 0));
  CHECK_NCCL(InvalidUsage, ncclDevCommCreate(comm, NULL, NULL));
  CHECK_TEXT(ncclGetLastError(comm), "ncclDevCommCreate: this is for kernels on a GPU");
  CHECK_NCCL(InvalidUsage, ncclPutSignal(NULL, 0, Int32, 0, NULL, 0, 0, 0, 0, comm, NULL));
  CHECK_NCCL(InvalidUsage, ncclParamGetI32(NULL, &number));
  ncclTeam_t team = ncclTeamWorld(comm);
  CHECK(team.nRanks == 0 && team.rank == 0 && team.stride == 0);
  CHECK_EQ(0, ncclTeamRankToWorld(comm, team, 1));
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static void encryption_takes_a_key_of_the_program(void) {
  struct {
    size_t size;
    unsigned magic, version;
    int mode;
    const char *psk;
  } config = {sizeof config, MAGIC, 23203, 0, NULL};
  CHECK_NCCL(Success, ncclSetEncryption(NULL));
  CHECK_NCCL(Success, ncclSetEncryption(&config));
  config.mode = 1;
  config.psk = "a key of at least thirty-two bytes";
  CHECK_NCCL(Success, ncclSetEncryption(&config));
  CHECK_NCCL(Success, ncclCommDestroy(alone()));
  config.psk = "a key of less than that";
  CHECK_NCCL(InvalidArgument, ncclSetEncryption(&config));
  CHECK_TEXT(ncclGetLastError(NULL), "shorter than 32 bytes");
  config.psk = NULL;
  CHECK_NCCL(InvalidArgument, ncclSetEncryption(&config));
  config.mode = 2;
  CHECK_NCCL(InvalidArgument, ncclSetEncryption(&config));
}

/* libnexar.so is loaded too, with its own communicators. */
static void nexar_and_its_stand_in_share_a_process(void) {
  ncclComm_t comm = alone();
  nexarComm_t ours;
  int x = 5, y = 0;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&ours, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarAllReduce(&x, &y, 1, nexarInt32, nexarSum, ours, NULL));
  CHECK_EQ(5, y);
  CHECK_NCCL(InvalidArgument, ncclAllReduce(&x, &y, 1, 99, Sum, comm, NULL));
  CHECK_EQ(0, strlen(nexarGetLastError(NULL)));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(ours));
  CHECK_NCCL(Success, ncclCommDestroy(comm));
}

static const struct test_case cases[] = {
    CASE(nexar_and_its_stand_in_share_a_process),
    CASE(the_version_is_2_30_7),
    CASE(error_strings_equal_those_of_nccl),
    CASE(destroys_accept_null_and_finalize_succeeds_once),
    CASE(wrong_arguments_give_code_4_and_texts_with_nccl_names),
    CASE(the_last_error_is_shared_by_threads_and_stays),
    CASE(a_call_on_a_foreign_stream_is_synchronous),
    CASE(a_group_ends_once_and_its_end_fails_after_a_failed_call),
    CASE(a_simulated_group_does_nothing),
    CASE(one_thread_drives_four_devices_in_groups),
    CASE(a_split_without_color_gives_null),
    CASE(a_failed_init_leaves_null),
    CASE(an_init_at_the_end_of_a_group_can_be_aborted),
    CASE(the_first_of_several_ids_is_used),
    CASE(windows_keep_their_address_until_deregistered),
    CASE(properties_fill_the_size_of_the_callers_structure),
    CASE(suspending_frees_nothing),
    CASE(a_config_of_one_call_is_checked_and_unknown_options_are_ignored),
    CASE(unsupported_functions_report_it),
    CASE(encryption_takes_a_key_of_the_program),
};

int main(void) {
  return RUN(cases);
}
