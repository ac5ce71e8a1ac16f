/*
 * A rank inside a send, a receive or a probe whose peer never answers:
 *
 *     message CALL PEER HOW
 *
 * CALL "send": of a message that the peer must receive first. "send_many": of short messages until
 * the peer has no memory for more. "recv", "recv_any", "probe", "probe_any": from PEER, or from any
 * rank. PEER itself calls nothing and waits for SIGUSR1; then it calls nexarCommAbort and exits if
 * HOW is "abort", or exits at once.
 *
 * Prints "ready" before the call, and at the end one line: the time of the failure in nanoseconds
 * of CLOCK_MONOTONIC, its code and its text.
 */
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <nexar.h>

#include "clock.h"

enum { LONG = 1 << 20, SHORT = 1000, TAG = 7 };

static char data[LONG];
static nexarComm_t comm;

static nexarResult_t call(const char *name, int peer) {
#define IS(other) (strcmp(name, other) == 0)
  if (IS("send")) return nexarSend(data, LONG, nexarUint8, peer, comm, NULL);
  if (IS("recv")) return nexarRecv(data, LONG, nexarUint8, peer, comm, NULL);
  if (IS("recv_any"))
    return nexarRecvTag(data, SHORT, nexarUint8, NEXAR_ANY_SOURCE, TAG, comm, NULL);
  if (IS("probe")) return nexarProbeTag(peer, TAG, NULL, NULL, comm);
  if (IS("probe_any")) return nexarProbeTag(NEXAR_ANY_SOURCE, NEXAR_ANY_TAG, NULL, NULL, comm);
  if (!IS("send_many")) exit(2);
  nexarResult_t result = nexarSuccess;
  while (result == nexarSuccess) result = nexarSend(data, SHORT, nexarUint8, peer, comm, NULL);
  return result;
}

static void fault(sigset_t *told, const char *how) {
  int signal;
  sigwait(told, &signal);
  if (strcmp(how, "abort") == 0) nexarCommAbort(comm);
  _exit(0);
}

int main(int argc, char **argv) {
  if (argc != 4) return 2;
  int rank = -1, peer = atoi(argv[2]);
  sigset_t told;
  sigemptyset(&told);
  sigaddset(&told, SIGUSR1);
  sigprocmask(SIG_BLOCK, &told, NULL); /* before the library starts a thread */
  nexarResult_t result = nexarCommInitFromEnv(&comm);
  if (result == nexarSuccess) result = nexarCommUserRank(comm, &rank);
  if (result == nexarSuccess) result = nexarBarrier(comm, NULL);
  if (result == nexarSuccess) {
    printf("ready\n");
    fflush(stdout);
    if (rank == peer) fault(&told, argv[3]);
    result = call(argv[1], peer);
  }
  printf("%lld %d %s\n", now_ns(), (int)result, nexarGetLastError(comm));
  nexarCommAbort(comm);
  return 0;
}
