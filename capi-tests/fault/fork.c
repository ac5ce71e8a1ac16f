/*
 * Ranks of a world fork in turn:
 *
 *     fork TRIES
 *
 * In the child every call must fail, and the kernel kills the child if it sends. Then the child
 * ends, and all ranks go on. A rank prints one line for each try: the number of failed checks.
 */
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <stddef.h>
#include <sys/prctl.h>
#include <sys/socket.h>
#include <sys/syscall.h>
#include <sys/wait.h>

#include "support/handles.h"

enum { COUNT = 1000 };

static int rank, size;
static nexarComm_t world;

/* From now on the kernel kills this process if it sends to a socket. */
static bool forbid_to_send(void) {
#define FIELD(field) \
  BPF_STMT(BPF_LD | BPF_W | BPF_ABS, (unsigned)offsetof(struct seccomp_data, field))
#define KILL_IF(number)                                  \
  BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, (number), 0, 1), \
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS)
  struct sock_filter rules[] = {
      FIELD(nr),
      KILL_IF(__NR_sendto),
      KILL_IF(__NR_sendmsg),
      KILL_IF(__NR_sendmmsg),
      KILL_IF(__NR_writev),
      KILL_IF(__NR_io_uring_setup),
      /* The output of a failed check may be written. */
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, __NR_write, 0, 3),
      FIELD(args[0]),
      BPF_JUMP(BPF_JMP | BPF_JGT | BPF_K, STDERR_FILENO, 0, 1),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  struct sock_fprog filter = {COUNT_OF(rules), rules};
  return prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

/* Runs the function in a child that must not send. Returns the wait status. */
static int in_a_child(void (*function)(void), void (*leave)(int)) {
  fflush(stdout); /* or the child prints it once more */
  pid_t child = fork();
  if (child == 0) {
    begin_watch();
    CHECK(forbid_to_send());
    function();
    leave(check_failures != 0);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  return status;
}

static void send_something(void) {
  int pair[2];
  CHECK_EQ(0, socketpair(AF_UNIX, SOCK_DGRAM, 0, pair));
  send(pair[0], "", 1, 0);
}

static void everything_is_refused(void) {
  nexarUniqueId id = {{0}};
  for (size_t way = 0; way < WAYS_TO_PASS; way++)
    CHECK_CODE(nexarInvalidUsage, pass_handle(way, world));
  CHECK_CODE(nexarInvalidUsage, nexarCommInitAll(&untouched.comm, 1, NULL));
  CHECK_CODE(nexarInvalidUsage, nexarGetUniqueId(&id));
  CHECK_CODE(nexarInvalidUsage, nexarCommInitRank(&untouched.comm, 1, id, 0));
  CHECK_CODE(nexarInvalidUsage, nexarCommInitFromEnv(&untouched.comm));
  CHECK_CODE(nexarInvalidUsage, nexarGroupStart());
  CHECK_CODE(nexarInvalidUsage, nexarStreamCreate(&untouched.handle));
  CHECK(is_untouched());
}

static void go_on(void) {
  static int sent[COUNT], received[COUNT];
  for (int i = 0; i < COUNT; i++) sent[i] = i + rank;
  CHECK_CODE(nexarSuccess,
             nexarAllReduce(sent, received, COUNT, nexarInt32, nexarSum, world, NULL));
  for (int i = 0; i < COUNT; i++) CHECK_EQ(size * i + size * (size - 1) / 2, received[i]);
}

int main(int argc, char **argv) {
  if (argc != 2) return 2;
  begin_watch();
  if (nexarCommInitFromEnv(&world) != nexarSuccess) return 1;
  live_comm = world;
  CHECK_CODE(nexarSuccess, nexarCommUserRank(world, &rank));
  CHECK_CODE(nexarSuccess, nexarCommCount(world, &size));
  if (WTERMSIG(in_a_child(send_something, _exit)) != SIGSYS) {
    fprintf(stderr, "this kernel does not keep a child from sending\n");
    return 1;
  }
  for (int try = 0; try < atoi(argv[1]); try++) {
    int before = check_failures;
    if (rank == try % size)
      CHECK_EQ(0, in_a_child(everything_is_refused, try / size % 2 ? exit : _exit));
    go_on();
    progress();
    printf("%d\n", check_failures - before);
  }
  return nexarCommDestroy(world) != nexarSuccess;
}
