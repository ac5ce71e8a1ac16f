/* nexarProbeTag: what it finds, that the message stays, and what ends a probe that waits. */
#define _GNU_SOURCE
#include <signal.h>
#include <sys/wait.h>

#include "support/status.h"

enum { LONG = 100000 };

/* A rank in a process of its own. Rank 1 is killed when it has heard of rank 0. */
static int be_rank(int rank, const int ids[2]) {
  nexarUniqueId id;
  nexarComm_t comm = NULL;
  nexarStatus_t status = unset;
  int flag = 0;
  char go = 1;
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
    CHECK_EQ(sizeof id, write(ids[1], &id, sizeof id));
  } else {
    CHECK_EQ(sizeof id, read(ids[0], &id, sizeof id));
  }
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&comm, 2, id, rank));
  if (rank == 1) {
    CHECK_CODE(nexarSuccess, send_numbers(3, 0, 2, comm));
    CHECK_CODE(nexarSuccess, nexarRecv(&go, 1, nexarInt8, 0, comm, NULL));
    raise(SIGKILL);
  }
  CHECK_CODE(nexarSuccess, nexarProbeTag(NEXAR_ANY_SOURCE, 2, NULL, &status, comm));
  CHECK_STATUS(status, 1, 2, 3, nexarInt32);
  CHECK_CODE(nexarSuccess, nexarSend(&go, 1, nexarInt8, 1, comm, NULL));
  status = unset;
  CHECK_CODE(nexarRemoteError, nexarProbeTag(NEXAR_ANY_SOURCE, 3, NULL, &status, comm));
  CHECK_TEXT(nexarGetLastError(comm), "rank 1");
  CHECK_CODE(nexarRemoteError, nexarProbeTag(1, 3, &flag, &status, comm));
  CHECK(is_unset(&status));
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
  return check_failures != 0;
}

/* The first case: a process that has used nexar could not fork the ranks. */
static void the_death_of_a_peer_ends_a_probe(void) {
  int ids[2];
  pid_t ranks[2];
  if (getenv("NEXAR_RANK")) {
    check_parts_skipped++;
    return;
  }
  CHECK_EQ(0, pipe(ids));
  for (int rank = 0; rank < 2; rank++) {
    ranks[rank] = fork();
    if (ranks[rank] == 0) _exit(be_rank(rank, ids));
  }
  int ended[2] = {-1, -1};
  for (int rank = 0; rank < 2; rank++)
    CHECK_EQ(ranks[rank], waitpid(ranks[rank], &ended[rank], 0));
  CHECK_EQ(0, ended[0]);
  CHECK(WIFSIGNALED(ended[1]) && WTERMSIG(ended[1]) == SIGKILL);
  close(ids[0]);
  close(ids[1]);
}

/* Rank 0 learns everything of its messages by probing. */
static void probe_and_receive(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const size_t counts[] = {3, LONG, 0, 50};
  for (size_t i = 0; rank > 0 && i < COUNT_OF(counts); i++)
    CHECK_CODE(nexarSuccess, send_numbers(counts[i] + (size_t)rank, 0, (int)i * n + rank, comm));
  size_t next[MOST_RANKS] = {0};
  for (size_t i = 0; rank == 0 && i < COUNT_OF(counts) * (size_t)(n - 1); i++) {
    nexarStatus_t status = unset, got = unset;
    int flag = 7;
    CHECK_CODE(nexarSuccess, nexarProbeTag(NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, NULL, &status, comm));
    CHECK(status.source > 0 && status.source < n);
    size_t number = next[status.source & 31]++;
    CHECK_STATUS(status, status.source, (int)number * n + status.source,
                 counts[number & 3] + (size_t)status.source, nexarInt32);
    /* It stays, for any number of probes. */
    CHECK_CODE(nexarSuccess, nexarProbeTag(status.source, status.tag, &flag, NULL, comm));
    CHECK_EQ(1, flag);
    int32_t *data = malloc(status.count * sizeof *data + 1);
    if (i % 2) {
      CHECK_CODE(nexarSuccess, nexarRecvTag(data, status.count, nexarInt32, status.source,
                                            status.tag, comm, NULL));
      check_numbers(data, status.count, status.count, status.tag);
    } else {
      CHECK_CODE(nexarSuccess, recv_numbers(status.count, NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, &got,
                                            comm));
      CHECK_STATUS(got, status.source, status.tag, status.count, status.datatype);
    }
    free(data);
  }
  check_it_works(rank, n, comm);
}

static void a_message_is_received_with_the_count_that_was_probed(void) {
  on_two_and_three(probe_and_receive);
  run_ranks(4, probe_and_receive, NULL);
}

/* The barriers keep the probes apart from messages of other cases. */
static void look(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  int flag = 7;
  nexarStatus_t status = unset;
  if (rank == 0) {
    CHECK_CODE(nexarSuccess, nexarProbeTag(1, NEXAR_ANY_TAG, &flag, &status, comm));
    CHECK_EQ(0, flag);
    CHECK(is_unset(&status));
  }
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  int32_t one = 1;
  if (rank == 1) {
    CHECK_CODE(nexarSuccess, nexarSend(&one, 1, nexarInt32, 0, comm, NULL)); /* never found */
    CHECK_CODE(nexarSuccess, send_numbers(1, 0, 4, comm));
  }
  if (rank != 0) return;
  for (flag = 0; !flag; progress()) {
    CHECK_CODE(nexarSuccess, nexarProbeTag(NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, &flag, &status, comm));
    CHECK(flag == 0 || flag == 1);
  }
  CHECK_STATUS(status, 1, 4, 1, nexarInt32);
  flag = 7;
  CHECK_CODE(nexarSuccess, nexarProbeTag(1, 5, &flag, NULL, comm));
  CHECK_EQ(0, flag);
  CHECK_CODE(nexarSuccess, recv_numbers(1, 1, 4, NULL, comm));
  CHECK_CODE(nexarSuccess, nexarProbeTag(1, NEXAR_ANY_TAG, &flag, NULL, comm));
  CHECK_EQ(0, flag);
  CHECK_CODE(nexarSuccess, nexarRecv(&one, 1, nexarInt32, 1, comm, NULL));
}

static void a_probe_with_a_flag_returns_at_once(void) { on_two_and_three(look); }

/* Rank 0 itself sends: alone, it could not be told otherwise. */
static void find_own(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  nexarStatus_t status = unset;
  CHECK_CODE(nexarSuccess, send_numbers(5, rank, 1, comm));
  CHECK_CODE(nexarSuccess, nexarProbeTag(rank, NEXAR_ANY_TAG, NULL, &status, comm));
  CHECK_STATUS(status, rank, 1, 5, nexarInt32);
  CHECK_CODE(nexarSuccess, recv_numbers(5, rank, 1, &status, comm));
}

static void a_rank_probes_for_its_own_message(void) {
  run_ranks(1, find_own, NULL);
  on_two_and_three(find_own);
}

static void probe_in_group(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  int flag = 7;
  nexarStatus_t status = unset;
  int32_t data = rank;
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  CHECK_CODE(nexarSuccess, nexarSendTag(&data, 1, nexarInt32, rank, 1, comm, NULL));
  CHECK_CODE(nexarInvalidUsage, nexarProbeTag(rank, 1, &flag, &status, comm));
  CHECK_TEXT(nexarGetLastError(NULL), "nexarProbeTag: called inside a group");
  CHECK_CODE(nexarInvalidUsage, nexarProbeTag(rank, 1, NULL, &status, comm));
  CHECK_CODE(nexarInvalidUsage, nexarGroupEnd());
  CHECK_EQ(7, flag);
  CHECK(is_unset(&status));
  /* The group was dropped. */
  CHECK_CODE(nexarSuccess, nexarProbeTag(rank, 1, &flag, &status, comm));
  CHECK_EQ(0, flag);
  check_it_works(rank, n, comm);
}

static void a_probe_inside_a_group_is_refused(void) { on_two_and_three(probe_in_group); }

static void meet_deadline(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  const int peers[] = {1, NEXAR_ANY_SOURCE};
  const char *const texts[] = {
      "Probe(from rank 1, tag 3): no result within 100 ms; rank 1 has not sent it",
      "Probe(from any rank, tag 3): no result within 100 ms; no rank has sent it"};
  for (size_t i = 0; i < COUNT_OF(peers); i++) {
    nexarComm_t another = another_with(rank, comm, 100);
    nexarStatus_t status = unset;
    if (rank == 0) {
      CHECK_CODE(nexarTimeout, nexarProbeTag(peers[i], 3, NULL, &status, another));
      CHECK_TEXT(nexarGetLastError(another), texts[i]);
      CHECK(is_unset(&status));
      CHECK_CODE(nexarTimeout, nexarProbeTag(peers[i], 3, &(int){0}, &status, another));
    }
    check_it_works(rank, n, comm);
    CHECK_CODE(nexarTimeout, nexarBarrier(another, NULL));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
  }
}

static void a_probe_that_finds_nothing_ends_at_its_deadline(void) {
  on_two_and_three(meet_deadline);
}

enum ending { ABORT, LEAVE, FAIL };

/* Rank 1 ends the communicator in which rank 0 waits, or about to. */
static void end_a_probe(int rank, int n, nexarComm_t comm, void *arg) {
  enum ending ending = *(enum ending *)arg;
  const int peers[] = {1, NEXAR_ANY_SOURCE};
  for (size_t i = 0; i < COUNT_OF(peers); i++) {
    nexarComm_t another = another_with(rank, comm, 0);
    nexarStatus_t status = unset;
    char bytes[2] = {0};
    if (rank == 0) {
      nexarResult_t result = nexarProbeTag(peers[i], NEXAR_ANY_TAG, NULL, &status, another);
      CHECK_CODE(ending == FAIL ? nexarInvalidUsage : nexarRemoteError, result);
      CHECK_TEXT(nexarGetLastError(another), ending == ABORT   ? "rank 1 aborted the communicator"
                                             : ending == LEAVE ? "has left the communicator"
                                                               : "Recv(up to 2 x int8");
      CHECK(is_unset(&status));
    } else if (ending == ABORT && rank == 1) {
      CHECK_CODE(nexarSuccess, nexarCommAbort(another));
      another = NULL;
    } else if (ending == FAIL && rank == 1) {
      /* It receives its own message with another datatype. */
      CHECK_CODE(nexarSuccess, nexarSendTag(bytes, 1, nexarUint8, 1, 0, another, NULL));
      CHECK_CODE(nexarInvalidUsage,
                 nexarRecvTagStatus(bytes, 2, nexarInt8, 1, 0, NULL, another, NULL));
    }
    CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
    check_it_works(rank, n, comm);
  }
}

static void the_end_of_a_peer_ends_a_probe(void) {
  for (enum ending ending = ABORT; ending <= FAIL; ending++) {
    run_ranks(2, end_a_probe, &ending);
    run_ranks(3, end_a_probe, &ending);
  }
}

static void *probe_until_aborted(void *comm) {
  nexarResult_t result = nexarProbeTag(NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, NULL, NULL, comm);
  /* The handle may be gone before the call has begun. */
  CHECK(result == nexarInvalidUsage || result == nexarInvalidArgument);
  return NULL;
}

static void abort_own(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  nexarComm_t another = another_with(rank, comm, 0);
  pthread_t thread;
  if (rank == 0) CHECK_EQ(0, pthread_create(&thread, NULL, probe_until_aborted, another));
  if (rank == 0) CHECK_CODE(nexarSuccess, nexarCommAbort(another));
  if (rank == 0) CHECK_EQ(0, pthread_join(thread, NULL));
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  if (rank != 0) CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
}

static void an_abort_ends_the_probe_of_another_thread(void) { on_two_and_three(abort_own); }

static void use_finalized(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  nexarComm_t another = another_with(rank, comm, 0);
  int flag = 7;
  char byte = 7;
  CHECK_CODE(nexarSuccess, nexarCommFinalize(another));
  CHECK_CODE(nexarInvalidUsage, nexarProbeTag(0, 0, &flag, NULL, another));
  CHECK_TEXT(nexarGetLastError(another),
             "Probe(from rank 0, tag 0) on a communicator that was finalized");
  CHECK_CODE(nexarInvalidUsage, nexarProbeTag(0, 0, NULL, NULL, another));
  CHECK_CODE(nexarInvalidUsage,
             nexarRecvTagStatus(&byte, 1, nexarInt8, 0, 0, NULL, another, NULL));
  CHECK_EQ(7, flag);
  CHECK_CODE(nexarSuccess, nexarCommDestroy(another));
}

static void a_finalized_communicator_is_refused(void) { on_two_and_three(use_finalized); }

static const struct test_case cases[] = {
    CASE(the_death_of_a_peer_ends_a_probe),
    CASE(a_message_is_received_with_the_count_that_was_probed),
    CASE(a_probe_with_a_flag_returns_at_once),
    CASE(a_rank_probes_for_its_own_message),
    CASE(a_probe_inside_a_group_is_refused),
    CASE(a_probe_that_finds_nothing_ends_at_its_deadline),
    CASE(the_end_of_a_peer_ends_a_probe),
    CASE(an_abort_ends_the_probe_of_another_thread),
    CASE(a_finalized_communicator_is_refused),
};

int main(void) { return RUN(cases); }
