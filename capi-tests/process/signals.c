/*
 * Time in which a thread or a process does not run is held against nobody. A program may stop the
 * thread that waits in a call, in a signal handler: the others go on to hear of its rank, also that it
 * aborts or exits there. And ranks that were all stopped have lost nobody.
 */
#define _GNU_SOURCE
#include <errno.h>
#include <pthread.h>
#include <sys/time.h>
#include <sys/wait.h>
#include <time.h>

#include "support/check.h"

/* A handler takes longer than peers are silent before they are lost. The least that is promised to
   work is 1000 ms; on a busy machine a rank may be silent for longer. */
enum { HANDLER_S = 6, PEER_TIMEOUT_MS = 2500, LEAST_PEER_TIMEOUT_MS = 1000, EXIT_CODE = 7 };

/* What is promised, in seconds, and what is not even reached on a busy machine. */
static const double PROMISED_S = 2.2, EXIT_PROMISED_S = 1.5, EXIT_GIVES_UP_S = 30;

static nexarComm_t comm;
static int begun[2]; /* a pipe: when the handler has begun */

static void tell_that_it_has_begun(void) {
  double now = seconds_now();
  if (write(begun[1], &now, sizeof now) != sizeof now) _exit(99);
}

static double when_it_has_begun(void) {
  double at = 0;
  while (read(begun[0], &at, sizeof at) != sizeof at)
    if (errno != EINTR) return 0;
  return at;
}

static void take_long(int signal) {
  (void)signal;
  tell_that_it_has_begun();
  struct timespec left = {.tv_sec = HANDLER_S};
  while (nanosleep(&left, &left) != 0) continue;
}

static void leave(int signal) {
  (void)signal;
  tell_that_it_has_begun();
  exit(EXIT_CODE);
}

/* Decides whether this thread may run the handler. */
static void mask_alarm(int how) {
  sigset_t alarm_only;
  sigemptyset(&alarm_only);
  sigaddset(&alarm_only, SIGALRM);
  CHECK_EQ(0, pthread_sigmask(how, &alarm_only, NULL));
}

/* Has the handler run on this thread when it waits. */
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

/* Runs each rank in a process of its own, and `meanwhile`. Returns the exit code of rank 0. */
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

static void wait_for_the_interrupted(void) {
  int data = 41;
  CHECK(when_it_has_begun() != 0);
  CHECK_CODE(nexarSuccess, nexarSend(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_CODE(nexarSuccess, nexarRecv(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_EQ(42, data);
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static void a_rank_in_a_long_signal_handler_is_not_lost(void) {
  CHECK_EQ(0, run_both(be_interrupted_in_a_receive, wait_for_the_interrupted, NULL));
}

static void *abort_during_the_handler(void *unused) {
  double begin = when_it_has_begun();
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

static void hear_of_the_abort(void) {
  int data = 0;
  double begin = seconds_now();
  CHECK_CODE(nexarRemoteError, nexarRecv(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "rank 0 aborted the communicator");
  CHECK_TIME(PROMISED_S, HANDLER_S, seconds_now() - begin);
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void an_abort_is_heard_while_a_handler_holds_up_the_thread_that_drives(void) {
  CHECK_EQ(0, run_both(be_interrupted_and_aborted, hear_of_the_abort, NULL));
}

static void be_interrupted_by_an_exit(void) {
  int data = 0;
  interrupt_soon(leave);
  nexarRecv(&data, 1, nexarInt32, 1, comm, NULL);
  CHECK(!"the handler exits");
}

static void hear_of_the_exit(void) {
  int data = 0;
  CHECK_CODE(nexarRemoteError, nexarRecv(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "rank 0 has left the communicator");
  CHECK_TIME(EXIT_PROMISED_S, EXIT_GIVES_UP_S, seconds_now() - when_it_has_begun());
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void an_exit_in_a_signal_handler_is_quick_and_heard_of(void) {
  double begin = seconds_now();
  CHECK_EQ(EXIT_CODE, run_both(be_interrupted_by_an_exit, hear_of_the_exit, NULL));
  CHECK_TIME(2 * EXIT_PROMISED_S, EXIT_GIVES_UP_S, seconds_now() - begin);
}

/* Calls in shared memory, wherever the signal finds them. */
static void be_interrupted_in_collectives(void) {
  float data[2] = {1, 2}, sum[2];
  interrupt_soon(leave);
  while (nexarAllReduce(data, sum, 2, nexarFloat32, nexarSum, comm, NULL) == nexarSuccess) continue;
  CHECK(!"the handler exits");
}

static void go_on_until_the_exit(void) {
  float data[2] = {1, 2}, sum[2];
  while (nexarAllReduce(data, sum, 2, nexarFloat32, nexarSum, comm, NULL) == nexarSuccess) continue;
  CHECK_TEXT(nexarGetLastError(comm), "rank 0 has "); /* left or, if nobody could say so, died */
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void an_exit_in_a_handler_is_quick_wherever_it_interrupts_a_collective(void) {
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
  when_it_has_begun();
  exit(EXIT_CODE);
}

static void hear_of_an_exit(void) {
  int data = 0;
  CHECK_CODE(nexarRemoteError, nexarRecv(&data, 1, nexarInt32, 0, comm, NULL));
  CHECK_TEXT(nexarGetLastError(comm), "rank 0 has left the communicator");
  CHECK_CODE(nexarSuccess, nexarCommAbort(comm));
}

static void an_exit_is_quick_while_a_handler_holds_up_the_thread_that_drives(void) {
  double begin = seconds_now();
  CHECK_EQ(EXIT_CODE, run_both(exit_while_a_handler_runs, hear_of_an_exit, NULL));
  CHECK_TIME(PROMISED_S, HANDLER_S, seconds_now() - begin);
}

static int go_on[2]; /* a pipe: a byte for each rank when both run again */

static void be_stopped(void) {
  char byte;
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
  tell_that_it_has_begun();
  CHECK_EQ(1, read(go_on[0], &byte, 1));
  for (int i = 0; i < 20; i++) {
    CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
    nanosleep(&(struct timespec){.tv_nsec = 20000000}, NULL);
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comm));
}

static void stop_both(void) {
  for (int rank = 0; rank < 2; rank++) CHECK(when_it_has_begun() != 0);
  for (int rank = 0; rank < 2; rank++) CHECK_EQ(0, kill(ranks[rank], SIGSTOP));
  struct timespec left = {.tv_sec = HANDLER_S};
  while (nanosleep(&left, &left) != 0) continue;
  for (int rank = 0; rank < 2; rank++) CHECK_EQ(0, kill(ranks[rank], SIGCONT));
  CHECK_EQ(2, write(go_on[1], "go", 2));
}

static void ranks_that_were_all_stopped_have_lost_nobody(void) {
  CHECK_EQ(0, pipe(go_on));
  CHECK_EQ(0, run_both(be_stopped, be_stopped, stop_both));
  for (int end = 0; end < 2; end++) close(go_on[end]);
}

static const struct test_case cases[] = {
    CASE(ranks_that_were_all_stopped_have_lost_nobody),
    CASE(a_rank_in_a_long_signal_handler_is_not_lost),
    CASE(an_abort_is_heard_while_a_handler_holds_up_the_thread_that_drives),
    CASE(an_exit_in_a_signal_handler_is_quick_and_heard_of),
    CASE(an_exit_in_a_handler_is_quick_wherever_it_interrupts_a_collective),
    CASE(an_exit_is_quick_while_a_handler_holds_up_the_thread_that_drives),
};

int main(void) {
  char timeout[20];
  int ms = getenv("CHECK_TIMES") ? LEAST_PEER_TIMEOUT_MS : PEER_TIMEOUT_MS;
  snprintf(timeout, sizeof timeout, "%d", ms);
  setenv("NEXAR_PEER_TIMEOUT_MS", timeout, 1);
  return RUN(cases);
}
