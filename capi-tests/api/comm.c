/* Creating, querying and destroying communicators, in every order, valid or not. */
#define _GNU_SOURCE
#include "support/calls.h"
#include "support/ranks.h"

#define UNWRITTEN ((nexarComm_t)0x5a5a5a5a)

static void refuse_init(nexarResult_t code, int ndev, const int *devlist, const char *argument) {
  nexarComm_t comms[3] = {UNWRITTEN, UNWRITTEN, UNWRITTEN};
  CHECK_CODE(code, nexarCommInitAll(comms, ndev, devlist));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarCommInitAll");
  CHECK_TEXT(nexarGetLastError(NULL), argument);
  for (int i = 0; i < 3; i++) CHECK(comms[i] == UNWRITTEN);
}

static void a_wrong_number_of_ranks_creates_nothing(void) {
  const int numbers[] = {0, -1, 257, INT_MIN, INT_MAX};
  for (size_t i = 0; i < COUNT_OF(numbers); i++)
    refuse_init(nexarInvalidArgument, numbers[i], NULL, "ndev");
}

static void the_largest_number_of_ranks_is_created(void) {
  nexarComm_t comms[256];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 256, NULL));
  for (int i = 0; i < 256; i++) {
    int rank = -1;
    CHECK_CODE(nexarSuccess, nexarCommUserRank(comms[i], &rank));
    CHECK_EQ(i, rank);
    CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[i]));
  }
}

static void a_wrong_device_list_creates_nothing(void) {
  const int negative[] = {0, -1, 2}, twice[] = {4, 1, 4};
  refuse_init(nexarInvalidArgument, 3, negative, "devlist[1]");
  refuse_init(nexarInvalidUsage, 3, twice, "devlist names device 4 twice");
}

static void a_null_output_for_handles_is_refused(void) {
  CHECK_CODE(nexarInvalidArgument, nexarCommInitAll(NULL, 2, NULL));
  CHECK_TEXT(nexarGetLastError(NULL), "comms is NULL");
}

static void query_rank_and_count(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int count = -1, own = -1;
  nexarResult_t error = nexarInternalError;
  CHECK_CODE(nexarSuccess, nexarCommCount(comm, &count));
  CHECK_CODE(nexarSuccess, nexarCommUserRank(comm, &own));
  CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &error));
  CHECK_EQ(n, count);
  CHECK_EQ(rank, own);
  CHECK_EQ(nexarSuccess, error);
  check_it_works(rank, n, comm);
}

static void every_rank_knows_its_rank_and_the_count(void) {
  for (int n = 1; n <= 9; n++) run_ranks(n, query_rank_and_count, NULL);
}

static void devices_do_not_matter_for_host_memory(void) {
  const int devlist[] = {7, 0, 1000000};
  nexarComm_t comms[3];
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 3, devlist));
  run_threads(3, comms, query_rank_and_count, NULL);
  for (int i = 0; i < 3; i++) CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[i]));
}

static void a_rank_has_the_device_that_it_was_given(void) {
  nexarComm_t comms[3], other;
  const int devices[3] = {4, 0, 9};
  nexarUniqueId id;
  int device = -7;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 3, devices));
  for (int rank = 0; rank < 3; rank++) {
    CHECK_CODE(nexarSuccess, nexarCommCuDevice(comms[rank], &device));
    CHECK_EQ(devices[rank], device);
    CHECK_CODE(nexarInvalidArgument, nexarCommCuDevice(comms[rank], NULL));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
    CHECK_CODE(nexarInvalidArgument, nexarCommCuDevice(comms[rank], &device));
  }
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 3, NULL));
  for (int rank = 0; rank < 3; rank++) {
    CHECK_CODE(nexarSuccess, nexarCommCuDevice(comms[rank], &device));
    CHECK_EQ(rank, device);
    CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[rank]));
  }
  CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&other, 1, id, 0));
  CHECK_CODE(nexarSuccess, nexarCommCuDevice(other, &device));
  CHECK_EQ(-1, device);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(other));
}

static void query_into_null(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "nexarCommCount: count is NULL");
  CHECK_CODE(nexarInvalidArgument, nexarCommUserRank(comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "nexarCommUserRank: rank is NULL");
  CHECK_CODE(nexarInvalidArgument, nexarCommGetAsyncError(comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "nexarCommGetAsyncError: asyncError is NULL");
  check_it_works(rank, n, comm);
}

static void a_null_output_of_a_query_is_refused(void) {
  run_ranks(1, query_into_null, NULL);
  run_ranks(3, query_into_null, NULL);
}

static void null_can_be_destroyed_but_not_queried(void) {
  int number = 77;
  nexarResult_t error = nexarTimeout;
  CHECK_CODE(nexarSuccess, nexarCommFinalize(NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(NULL));
  CHECK_CODE(nexarSuccess, nexarCommAbort(NULL));
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(NULL, &number));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarCommCount: comm is NULL");
  CHECK_CODE(nexarInvalidArgument, nexarCommUserRank(NULL, &number));
  CHECK_CODE(nexarInvalidArgument, nexarCommGetAsyncError(NULL, &error));
  CHECK_EQ(77, number);
  CHECK_EQ(nexarTimeout, error);
}

/* Every function that takes a handle refuses this one and does not write its output parameters. */
static void check_it_is_dead(nexarComm_t comm) {
  int number = 77, data[4] = {1, 2, 3, 4};
  nexarResult_t error = nexarTimeout;
  CHECK_CODE(nexarInvalidArgument, nexarCommCount(comm, &number));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarCommCount: comm");
  CHECK_CODE(nexarInvalidArgument, nexarCommUserRank(comm, &number));
  CHECK_CODE(nexarInvalidArgument, nexarCommGetAsyncError(comm, &error));
  CHECK_CODE(nexarInvalidArgument, nexarCommFinalize(comm));
  CHECK_CODE(nexarInvalidArgument, nexarCommDestroy(comm));
  CHECK_CODE(nexarInvalidArgument, nexarCommAbort(comm));
  for (int f = 0; f < FUNCTIONS; f++) {
    struct call call = {.function = f, .send = data, .recv = data + 2, .count = 2,
                        .datatype = nexarInt32, .comm = comm};
    CHECK_CODE(nexarInvalidArgument, make_call(call));
    CHECK_TEXT(nexarGetLastError(NULL), function_names[f]);
  }
  CHECK_EQ(77, number);
  CHECK_EQ(nexarTimeout, error);
  CHECK(data[2] == 3 && data[3] == 4);
}

static void a_destroyed_communicator_is_dead(void) {
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
  check_it_is_dead(comm);
}

static void an_aborted_communicator_is_dead(void) {
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
  check_it_is_dead(comm);
}

static void a_finalized_communicator_takes_no_operations_and_can_be_destroyed(void) {
  for (int f = 0; f < FUNCTIONS; f++) {
    int data[4] = {1, 2, 3, 4}, count = 0;
    nexarResult_t error = nexarTimeout;
    nexarComm_t comm;
    CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
    CHECK_CODE(nexarSuccess, nexarCommFinalize(comm));
    struct call call = {.function = f, .send = data, .recv = data + 2, .count = 2,
                        .datatype = nexarInt32, .comm = comm};
    CHECK_CODE(nexarInvalidUsage, make_call(call));
    CHECK_TEXT(nexarGetLastError(comm), function_names[f]);
    CHECK_TEXT(nexarGetLastError(comm), "finalized");
    CHECK(data[2] == 3 && data[3] == 4);
    CHECK_CODE(nexarSuccess, nexarCommCount(comm, &count));
    CHECK_EQ(1, count);
    CHECK_CODE(nexarSuccess, nexarCommGetAsyncError(comm, &error));
    CHECK_EQ(nexarSuccess, error);
    CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
    check_it_is_dead(comm);
  }
}

static void finalizing_twice_is_an_argument_error(void) {
  nexarComm_t comm;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&comm, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarCommFinalize(comm));
  CHECK_CODE(nexarInvalidArgument, nexarCommFinalize(comm));
  CHECK_TEXT(nexarGetLastError(comm), "nexarCommFinalize");
  CHECK_TEXT(nexarGetLastError(comm), "finalized before");
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void finalize_when_done(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  for (int i = 0; i < 20; i++) check_it_works(rank, n, comm);
  CHECK_CODE(nexarSuccess, nexarCommFinalize(comm));
}

static void ranks_may_finalize_while_peers_are_still_inside_the_last_operation(void) {
  for (int round = 0; round < 20; round++) run_ranks(4, finalize_when_done, NULL);
}

/* The root's broadcast may return before the other ranks have received. */
static void leave_after_sending(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  int32_t data[1000] = {0};
  for (int i = 0; rank == 0 && i < 1000; i++) data[i] = i;
  CHECK_CODE(nexarSuccess, nexarBcast(data, 1000, nexarInt32, 0, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
  for (int i = 0; i < 1000; i++) CHECK_EQ(i, data[i]);
}

static void what_a_rank_has_sent_arrives_after_it_was_destroyed(void) {
  for (int round = 0; round < 50; round++) {
    nexarComm_t comms[3];
    CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 3, NULL));
    run_threads(3, comms, leave_after_sending, NULL);
  }
}

static void a_new_communicator_is_not_mistaken_for_a_destroyed_one(void) {
  nexarComm_t first, second;
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&first, 1, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(first));
  CHECK_CODE(nexarSuccess, nexarCommInitAll(&second, 1, NULL));
  CHECK(first != second);
  check_it_is_dead(first);
  check_it_works(0, 1, second);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(second));
}

static const struct test_case cases[] = {
    CASE(a_wrong_number_of_ranks_creates_nothing),
    CASE(the_largest_number_of_ranks_is_created),
    CASE(a_wrong_device_list_creates_nothing),
    CASE(a_null_output_for_handles_is_refused),
    CASE(every_rank_knows_its_rank_and_the_count),
    CASE(devices_do_not_matter_for_host_memory),
    CASE(a_rank_has_the_device_that_it_was_given),
    CASE(a_null_output_of_a_query_is_refused),
    CASE(null_can_be_destroyed_but_not_queried),
    CASE(a_destroyed_communicator_is_dead),
    CASE(an_aborted_communicator_is_dead),
    CASE(a_finalized_communicator_takes_no_operations_and_can_be_destroyed),
    CASE(finalizing_twice_is_an_argument_error),
    CASE(ranks_may_finalize_while_peers_are_still_inside_the_last_operation),
    CASE(what_a_rank_has_sent_arrives_after_it_was_destroyed),
    CASE(a_new_communicator_is_not_mistaken_for_a_destroyed_one),
};

int main(void) { return RUN(cases); }
