/*
 * Checks whether nexar works on the CUDA devices of this machine, and prints a report.
 *
 *     nexar-run -n 2 gpu_check       ranks are processes, which share the devices
 *     gpu_check                      ranks are threads, one for each device
 *     gpu_check 1024                 figures up to 1024 MiB; 256 without a number
 *
 * It needs a driver and no toolkit. Checks compare every element; figures are only printed. The
 * exit code is 0 if no check failed, 1 if one failed, 3 if one hung, 77 without CUDA. The tests run
 * it on the fake driver, so that it stays correct; the report then says so. In gpu/:
 *
 *     driver.c         loads the driver             rank.c             a rank, its memory, failures
 *     collectives.c    every call, type and size    stream_checks.c    order, streams, groups
 *     memory_checks.c  kinds of memory              failure_checks.c   refusals, failures, aborts
 *     figures.c        speeds
 */
#include <pthread.h>
#include <signal.h>
#include <unistd.h>

#include "gpu/rank.h"

enum { NO_CUDA = 77, LATE = 3, PATIENCE_S = 100 };

/* Checks need calls of several pieces; figures may need more memory. */
enum { MOST_MIB_OF_CHECKS = 72, LEAST_MIB = 1 };

struct check {
  const char *name;
  void (*run)(void);
};

/* Each call is a check: all types, in place and not, all sizes and streams. */
static const char *const calls[] = {
    "AllReduce",     "Reduce",     "Broadcast",         "Bcast",            "AllGather",
    "ReduceScatter", "AllToAll",   "Gather",            "Scatter",          "Scan",
    "ExScan",        "AllGatherV", "AllReduceBucketed", "ReduceScatterV",   "AllToAllV",
    "GatherV",       "ScatterV",   "Send, Recv",        "SendTag, RecvTag", "SendRecv",
    "Barrier",
};

static const struct check checks[] = {
    {"operators", try_operators},
    {"work before and after a call is in order", try_order},
    {"calls on two streams are in order", try_two_streams},
    {"groups of calls and messages", try_group},
    {"a call returns before its stream continues", try_return_before},
    {"memory of a device, pinned, of the program", try_memory_kinds},
    {"managed memory", try_managed},
    {"memory of the program that is registered", try_registered},
    {"memory of a pool", try_pool},
    {"a thread without a context", try_thread_without_context},
    {"memory of another device is refused", try_other_device},
    {"a capture is refused and stays valid", try_capture},
    {"different calls release the stream, with 0xff", try_mismatch},
    {"an abort releases the stream", try_abort},
};

static const char *_Atomic running = "the beginning";
static atomic_bool has_failed;
static bool are_processes;
static int passed, failed, skipped;

/* Calls only write and _exit, because the thread that hangs may hold the locks of stdio. */
static void too_late(int signal) {
  (void)signal;
  const char *parts[] = {"  FAILED   ", running, ": no end after two minutes\n"};
  for (size_t i = 0; i < 3; i++)
    if (write(STDOUT_FILENO, parts[i], strlen(parts[i])) < 0) break;
  _exit(LATE);
}

static _Noreturn void give_up(const char *what) {
  fprintf(stderr, "%s: %s\n", what, nexarGetLastError(NULL));
  exit(1);
}

static void describe_device(int ordinal) {
  char name[200] = "of an unknown name", bus[32] = "";
  size_t bytes = 0;
  int major = 0, minor = 0, pools = 0, managed = 0, concurrent = 0;
  CUdevice device = 0;
  cuda.cuDeviceGet(&device, ordinal);
  if (cuda.cuDeviceGetName) cuda.cuDeviceGetName(name, sizeof name, device);
  if (cuda.cuDeviceTotalMem_v2) cuda.cuDeviceTotalMem_v2(&bytes, device);
  cuda.cuDeviceGetPCIBusId(bus, sizeof bus, device);
  cuda.cuDeviceGetAttribute(&major, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device);
  cuda.cuDeviceGetAttribute(&minor, CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device);
  cuda.cuDeviceGetAttribute(&pools, CU_DEVICE_ATTRIBUTE_MEMORY_POOLS_SUPPORTED, device);
  cuda.cuDeviceGetAttribute(&managed, CU_DEVICE_ATTRIBUTE_MANAGED_MEMORY, device);
  cuda.cuDeviceGetAttribute(&concurrent, CU_DEVICE_ATTRIBUTE_CONCURRENT_MANAGED_ACCESS, device);
  printf("device %d  %s, %s, compute %d.%d, %zu MiB, pools: %s, managed memory: %s\n", ordinal,
         name, bus, major, minor, bytes >> 20, pools ? "yes" : "no",
         !managed ? "no" : concurrent ? "yes, concurrent" : "yes");
}

/* The kernel module of the driver, which has its own version. */
static void print_module(void) {
  char line[300] = "";
  FILE *file = cuda.is_fake ? NULL : fopen("/proc/driver/nvidia/version", "re");
  if (file && fgets(line, sizeof line, file)) printf("kernel    %s", line);
  if (file) fclose(file);
}

static void print_head(void) {
  int version = 0, library = 0;
  cuda.cuDriverGetVersion(&version);
  nexarGetVersion(&library);
  printf("nexar %d.%d.%d on CUDA devices%s\n\n", library / 10000, library / 100 % 100,
         library % 100, cuda.is_fake ? ": NONE OF THEM REAL, this is the driver of the tests" : "");
  printf("driver    CUDA %d.%d\n", version / 1000, version % 1000 / 10);
  print_module();
  for (int i = 0; i < cuda.devices; i++) describe_device(i);
  printf("memops    %s\n", me->without_memops ? me->without_memops : "yes");
  printf("ranks     %d %s\n", me->n, are_processes ? "processes" : "threads, one for each device");
  printf("sizes     checks up to %zu MiB, figures up to %zu MiB\n\n", me->room >> 20,
         me->most >> 20);
  fflush(stdout);
}

/* Collective: the outcome of a check is that of the worst rank; rank 0 prints it. */
static void print_outcome(const char *name, bool is_check) {
  struct {
    enum status status;
    int cases;
    char detail[DETAIL];
  } mine = {me->status, me->cases, ""}, all[MOST_RANKS];
  memcpy(mine.detail, me->detail, DETAIL);
  if (nexarAllGather(&mine, all, sizeof mine, nexarUint8, me->world, NULL) != nexarSuccess)
    give_up("the ranks cannot exchange their outcomes");
  int worst = 0, cases = 0;
  for (int rank = 0; rank < me->n; rank++) {
    if (all[rank].status > all[worst].status) worst = rank;
    cases += all[rank].cases;
  }
  enum status status = all[worst].status;
  if (status == FAILED) atomic_store(&has_failed, true);
  if (me->rank != 0 || (!is_check && status != FAILED)) return;
  switch (status) {
    case PASSED:
      passed++;
      printf("  ok       %s (%d cases)\n", name, cases);
      break;
    case SKIPPED:
      skipped++;
      printf("  skipped  %s: %s\n", name, all[worst].detail);
      break;
    case FAILED:
      failed++;
      printf("  FAILED   %s\n", name);
      for (int rank = 0; rank < me->n; rank++)
        if (all[rank].status == FAILED) printf("           %s\n", all[rank].detail);
  }
  fflush(stdout);
}

/* Each check has its own communicator, so that its failure does not affect the next check. */
static void run_check(const char *name, void (*run)(void)) {
  me->status = PASSED;
  me->cases = 0;
  me->detail[0] = 0;
  doing("the beginning");
  running = name;
  alarm(PATIENCE_S);
  if (OK(nexarCommSplit(me->world, 0, me->rank, &me->comm, NULL))) {
    run ? run() : try_collectives(name);
    if (me->comm) OK(nexarCommDestroy(me->comm));
    me->comm = NULL;
  }
  print_outcome(name, run != print_figures);
}

static void run_rank(void) {
  if (me->status == FAILED) {
    fprintf(stderr, "%s\n", me->detail);
    exit(1);
  }
  if (me->rank == 0) print_head();
  for (size_t i = 0; i < sizeof calls / sizeof calls[0]; i++) run_check(calls[i], NULL);
  for (size_t i = 0; i < sizeof checks / sizeof checks[0]; i++)
    run_check(checks[i].name, checks[i].run);
  run_check("figures", print_figures);
  if (me->rank == 0) printf("\n%d ok, %d failed, %d skipped\n", passed, failed, skipped);
  end_rank();
  if (nexarCommDestroy(me->world) != nexarSuccess) give_up("the communicator cannot be destroyed");
}

static CUcontext context_of(int device) {
  CUcontext context = NULL;
  CUresult code = cuda.cuDevicePrimaryCtxRetain(&context, device);
  if (code == CUDA_SUCCESS) return context;
  fprintf(stderr, "device %d has no context: code %u\n", device, (unsigned)code);
  exit(1);
}

/* The device is current when the communicator is created: the library allocates nothing later. */
static void run_process(size_t room, size_t most) {
  static struct rank rank;
  are_processes = true;
  rank.rank = atoi(getenv("NEXAR_RANK"));
  rank.device = rank.rank % cuda.devices;
  rank.context = context_of(rank.device);
  begin_rank(&rank, room, most);
  if (nexarCommInitFromEnv(&rank.world) != nexarSuccess) give_up("no communicator");
  if (nexarCommCount(rank.world, &rank.n) != nexarSuccess) give_up("no communicator");
  if (rank.n > MOST_RANKS) {
    fprintf(stderr, "at most %d ranks\n", MOST_RANKS);
    exit(1);
  }
  run_rank();
  cuda.cuDevicePrimaryCtxRelease_v2(rank.device);
}

struct start {
  struct rank rank;
  size_t room, most;
  pthread_t thread;
};

static void *run_thread(void *start) {
  struct start *self = start;
  begin_rank(&self->rank, self->room, self->most);
  run_rank();
  return NULL;
}

static void run_threads(size_t room, size_t most) {
  static struct start starts[MOST_RANKS];
  nexarComm_t comms[MOST_RANKS];
  int n = cuda.devices < MOST_RANKS ? cuda.devices : MOST_RANKS;
  for (int i = 0; i < n; i++)
    starts[i] = (struct start){{.rank = i, .n = n, .device = i, .context = context_of(i)}, room,
                               most, 0};
  if (nexarCommInitAll(comms, n, NULL) != nexarSuccess) give_up("no communicator");
  for (int i = 0; i < n; i++) {
    starts[i].rank.world = comms[i];
    if (pthread_create(&starts[i].thread, NULL, run_thread, &starts[i]) != 0) exit(1);
  }
  for (int i = 0; i < n; i++) pthread_join(starts[i].thread, NULL);
  for (int i = 0; i < n; i++) cuda.cuDevicePrimaryCtxRelease_v2(i);
}

int main(int argc, char **argv) {
  long mib = argc > 1 ? strtol(argv[1], NULL, 10) : 256;
  if (argc > 2 || mib < LEAST_MIB) {
    fprintf(stderr, "usage: gpu_check [MiB of the largest buffer, 256 without it]\n");
    return 2;
  }
  const char *why = load_driver();
  if (why) {
    printf("there is no CUDA here: %s\n", why);
    return NO_CUDA;
  }
  setenv("NEXAR_OP_TIMEOUT_MS", "60000", 0); /* below PATIENCE_S: nexar reports a hang first */
  signal(SIGALRM, too_late);
  size_t room = (size_t)(mib < MOST_MIB_OF_CHECKS ? mib : MOST_MIB_OF_CHECKS) << 20;
  (getenv("NEXAR_RANK") ? run_process : run_threads)(room, (size_t)mib << 20);
  return has_failed;
}
