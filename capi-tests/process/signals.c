/*
 * Time in which a thread or a process does not run does not count as silence of a rank. A long
 * signal handler on the thread that waits in a call does not lose the rank; peers learn of an abort
 * or exit inside the handler. Ranks that were all stopped lose no peer.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "support/check.h"

/* The handler takes longer than the peer timeout. The shortest supported timeout is 1000 ms; on a
   busy machine a rank may be silent for longer. */
enum { HANDLER_S = 6, PEER_TIMEOUT_MS = 2500, LEAST_PEER_TIMEOUT_MS = 1000, EXIT_CODE = 7 };

/* Promised times in seconds, and times that are not reached even on a busy machine. */
static const double PROMISED_S = 2.2, EXIT_PROMISED_S = 1.5, EXIT_GIVES_UP_S = 30;

static nexarComm_t comm;
static int begun[2]; /* a pipe for the time at which the handler begins */

static void write_time_of_handler(void) {
  double now = seconds_now();
  if (write(begun[1], &now, sizeof now) != sizeof now) _exit(99);
}

static double read_time_of_handler(void) {
  double at = 0;
  while (read(begun[0], &at, sizeof at) != sizeof at)
    if (errno != EINTR) return 0;
  return at;
}

static void take_long(int signal) {
  (void)signal;
  write_time_of_handler();
  struct timespec left = {.tv_sec = HANDLER_S};
  while (nanosleep(&left, &left) != 0) continue;
}

static void leave(int signal) {
  (void)signal;
  write_time_of_handler();
  exit(EXIT_CODE);
}

/* Blocks or unblocks the handler on this thread. */
static void mask_alarm(int how) {
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  CHECK_EQ(0, pthread_sigmask(how, &alarm_only, NULL));
}

/* Makes the handler run in `soon_us`, when this thread waits in its call. */
static int soon_us = 100000;
static void interrupt_soon(void (*handler)(int)) {
  struct sigaction action = {.sa_handler = handler, .sa_flags = SA_RESTART};
  struct itimerval soon = {.it_value = {.tv_usec = soon_us}};
  CHECK_EQ(0, sigaction(SIGALRM, &action, NULL));
  CHECK_EQ(0, setitimer(ITIMER_REAL, &soon, NULL));
}

static void join(const nexarUniqueId *id, int rank) {
  CHECK_CODE(nexarSuccess, nexarCommInitRank(&comm, 2, *id, rank));
}

static pid_t ranks[2];

/* Runs each rank in its own process, and `meanwhile` here. Returns the exit code of rank 0. */
static int run_both(void (*first)(void), void (*second)(void), void (*meanwhile)(void)) {
  int id_pipe[2];
  nexarUniqueId id;
  CHECK_EQ(0, pipe(id_pipe));
  CHECK_EQ(0, pipe(begun));
  fflush(NULL);
  for (int rank = 0; rank < 2; rank++) {
    ranks[rank] = fork();
    if (ranks[rank] != 0) continue;
    begin_watch();
    if (rank == 0) {
      CHECK_CODE(nexarSuccess, nexarGetUniqueId(&id));
      CHECK_EQ(sizeof id, write(id_pipe[1], &id, sizeof id));
    } else {
      CHECK_EQ(sizeof id, read(id_pipe[0], &id, sizeof id));
    }
    join(&id, rank);
    (rank == 0 ? first : second)();
    fflush(NULL);
    _exit(check_failures != 0);
  }
  if (meanwhile) meanwhile();
  int status[2];
  for (int rank = 0; rank < 2; rank++)
    CHECK_EQ(ranks[rank], waitpid(ranks[rank], &status[rank], 0));
  CHECK(WIFEXITED(status[0]));
  CHECK(WIFEXITED(status[1]) && WEXITSTATUS(status[1]) == 0);
  for (int end = 0; end < 2; end++) close(id_pipe[end]), close(begun[end]);
  return WEXITSTATUS(status[0]);
}

static void be_interrupted_in_a_receive(void) {
  int data = 0;
  interrupt_soon(take_long);
  CHECK_CODE(nexarSuccess, nexarRecv(&data, 1, nexarInt32, 1, comm, NULL));
  CHECK_EQ(41, data);
  data++;
  CHECK_CODE(nexarSuccess, nexarSend(&data, 1, nexarInt32, 1, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static void exchange_with_the_interrupted_rank(void) {
  int data = 41;
  CHECK(read_time_of_handler() != 0);
  CHECK_CODE(nexarSuccess, nexarSend(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarRecv(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_EQ(42, data);
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static void a_rank_in_a_long_signal_handler_is_not_lost(void) {
  CHECK_EQ(0, run_both(be_interrupted_in_a_receive, exchange_with_the_interrupted_rank, NULL));
}

static void *abort_during_the_handler(void *unused) {
  double begin = read_time_of_handler();
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
  CHECK_TIME(PROMISED_S, HANDLER_S, seconds_now() - begin);
  return unused;
}

static void be_interrupted_and_aborted(void) {
  int data = 0;
  pthread_t other;
  mask_alarm(SIG_BLOCK);
  CHECK_EQ(0, pthread_create(&other, NULL, abort_during_the_handler, NULL));
  mask_alarm(SIG_UNBLOCK);
  interrupt_soon(take_long);
  CHECK_CODE(nexarInvalidUsage, nexarRecv(&data, 1, nexarInt32, 1, comm, NULL));
  CHECK_EQ(0, pthread_join(other, NULL));
}

static void expect_the_abort(void) {
  int data = 0;
  double begin = seconds_now();
  CHECK_CODE(nexarRemoteError, nexarRecv(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "rank 0 aborted the communicator");
  CHECK_TIME(PROMISED_S, HANDLER_S, seconds_now() - begin);
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void an_abort_is_reported_while_a_handler_blocks_the_driving_thread(void) {
  CHECK_EQ(0, run_both(be_interrupted_and_aborted, expect_the_abort, NULL));
}

static void be_interrupted_by_an_exit(void) {
  int data = 0;
  interrupt_soon(leave);
  nexarRecv(&data, 1, nexarInt32, 1, comm, NULL);
  CHECK(!"the handler exits");
}

static void expect_the_exit(void) {
  int data = 0;
  CHECK_CODE(nexarRemoteError, nexarRecv(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "rank 0 has left the communicator");
  CHECK_TIME(EXIT_PROMISED_S, EXIT_GIVES_UP_S, seconds_now() - read_time_of_handler());
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void an_exit_in_a_signal_handler_is_quick_and_reported(void) {
  double begin = seconds_now();
  CHECK_EQ(EXIT_CODE, run_both(be_interrupted_by_an_exit, expect_the_exit, NULL));
  CHECK_TIME(2 * EXIT_PROMISED_S, EXIT_GIVES_UP_S, seconds_now() - begin);
}

/* Calls in shared memory, which the signal interrupts at any point. */
static void be_interrupted_in_collectives(void) {
  float data[2] = {1, 2}, sum[2];
  interrupt_soon(leave);
  while (nexarAllReduce(data, sum, 2, nexarFloat32, nexarSum, comm, NULL) == nexarSuccess) continue;
  CHECK(!"the handler exits");
}

static void go_on_until_the_exit(void) {
  float data[2] = {1, 2}, sum[2];
  while (nexarAllReduce(data, sum, 2, nexarFloat32, nexarSum, comm, NULL) == nexarSuccess) continue;
  CHECK_TEXT(nexarGetLastError(comm), "rank 0 has "); /* "left", or "died" without a last message */
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void an_exit_in_a_handler_is_quick_at_any_point_of_a_collective(void) {
  for (int i = 0; i < 8; i++) {
    double begin = seconds_now();
    soon_us = 20000 + 7919 * i;
    CHECK_EQ(EXIT_CODE, run_both(be_interrupted_in_collectives, go_on_until_the_exit, NULL));
    CHECK_TIME(EXIT_PROMISED_S, EXIT_GIVES_UP_S, seconds_now() - begin);
  }
  soon_us = 100000;
}

static void *be_interrupted_in_a_thread(void *unused) {
  mask_alarm(SIG_UNBLOCK);
  int data = 0;
  interrupt_soon(take_long);
  nexarRecv(&data, 1, nexarInt32, 1, comm, NULL);
  return unused;
}

static void exit_while_a_handler_runs(void) {
  pthread_t other;
  mask_alarm(SIG_BLOCK);
  CHECK_EQ(0, pthread_create(&other, NULL, be_interrupted_in_a_thread, NULL));
  read_time_of_handler();
  exit(EXIT_CODE);
}

static void expect_an_exit(void) {
  int data = 0;
  CHECK_CODE(nexarRemoteError, nexarRecv(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "rank 0 has left the communicator");
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void an_exit_is_quick_while_a_handler_blocks_the_driving_thread(void) {
  double begin = seconds_now();
  CHECK_EQ(EXIT_CODE, run_both(exit_while_a_handler_runs, expect_an_exit, NULL));
  CHECK_TIME(PROMISED_S, HANDLER_S, seconds_now() - begin);
}

static int go_on[2]; /* a pipe: a byte for each rank when both run again */

static void be_stopped(void) {
  char byte;
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  write_time_of_handler();
  CHECK_EQ(1, read(go_on[0], &byte, 1));
  for (int i = 0; i < 20; i++) {
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static void stop_both(void) {
  for (int rank = 0; rank < 2; rank++) CHECK(read_time_of_handler() != 0);
  for (int rank = 0; rank < 2; rank++) CHECK_EQ(0, kill(ranks[rank], SIGSTOP));
  struct timespec left = {.tv_sec = HANDLER_S};
  while (nanosleep(&left, &left) != 0) continue;
  for (int rank = 0; rank < 2; rank++) CHECK_EQ(0, kill(ranks[rank], SIGCONT));
  CHECK_EQ(2, write(go_on[1], "go", 2));
}

static void ranks_that_were_all_stopped_lose_no_peer(void) {
  CHECK_EQ(0, pipe(go_on));
  CHECK_EQ(0, run_both(be_stopped, be_stopped, stop_both));
  for (int end = 0; end < 2; end++) close(go_on[end]);
}

static const struct test_case cases[] = {
    CASE(ranks_that_were_all_stopped_lose_no_peer),
    CASE(a_rank_in_a_long_signal_handler_is_not_lost),
    CASE(an_abort_is_reported_while_a_handler_blocks_the_driving_thread),
    CASE(an_exit_in_a_signal_handler_is_quick_and_reported),
    CASE(an_exit_in_a_handler_is_quick_at_any_point_of_a_collective),
    CASE(an_exit_is_quick_while_a_handler_blocks_the_driving_thread),
};

int main(void) {
  char timeout[20];
  int ms = getenv("CHECK_TIMES") ? LEAST_PEER_TIMEOUT_MS : PEER_TIMEOUT_MS;
  snprintf(timeout, sizeof timeout, "%d", ms);
  setenv("NEXAR_PEER_TIMEOUT_MS", timeout, 1);
  return RUN(cases);
}
