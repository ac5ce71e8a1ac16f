/*
 * One rank of four, in turn, ends its communicator while the others are inside calls:
 *
 *     leave HOW TRIES
 *
 * HOW is abort: by another thread, while the rank is inside a call itself; abort_queued: while
 * calls are queued on its stream; abort_init: while the communicator is being created; destroy:
 * while the others wait for the rank; destroy_queued: all ranks destroy it with calls queued on
 * streams.
 *
 * A rank prints one line for each try, with "|" between its fields: the rank that leaves, the start
 * time or 0 if this rank does not know it, the end time of this rank's calls, both in nanoseconds
 * of CLOCK_MONOTONIC, their code and its text.
 */
#include <pthread.h>
#include <sched.h>

#include "support/calls.h"
#include "clock.h"

enum { RANKS = 4, QUEUED = 8, COUNT = 1000 };

/* Calls in which every rank waits for all others. */
static const enum function waiting_calls[] = {
    ALL_REDUCE,   ALL_GATHER,       REDUCE_SCATTER, ALL_REDUCE_BUCKETED, ALL_TO_ALL,
    ALL_GATHER_V, REDUCE_SCATTER_V, ALL_TO_ALL_V,   BARRIER};

struct try {
  enum function function;
  nexarComm_t comm;
  nexarUniqueId id;
  int leaver, late; /* late: the rank that makes no call, so that the others stay in theirs */
  nexarStream_t stream;
  atomic_bool about_to_call;
  nexarResult_t result;
  char text[500];
  long long began, ended;
};

static int rank;
static nexarComm_t world;
static int sent[RANKS * COUNT], received[QUEUED][RANKS * COUNT];

static void meet(void) { CHECK_CODE(nexarSuccess, nexarBarrier(world, NULL)); }

static void note(struct try *try, nexarResult_t result) {
  try->ended = now_ns();
  try->result = result;
  if (result != nexarSuccess)
    snprintf(try->text, sizeof try->text, "%s", nexarGetLastError(NULL));
}

static struct call call_number(const struct try *try, int number) {
  return (struct call){.function = try->function, .send = sent, .recv = received[number],
                       .count = COUNT, .datatype = nexarInt32, .comm = try->comm,
                       .stream = try->stream};
}

static void queue_calls(struct try *try) {
  for (int i = 0; i < QUEUED; i++) CHECK_CODE(nexarSuccess, make_call(call_number(try, i)));
}

/* For the late rank, so that it too is inside a call that cannot complete. */
static void receive(struct try *try) {
  note(try, nexarRecv(received, 1, nexarInt32, try->leaver, try->comm, NULL));
}

static void call(struct try *try) {
  if (rank == try->late) return receive(try);
  note(try, make_call(call_number(try, 0)));
}

static void wait_for_the_queue(struct try *try) {
  if (rank == try->late) return receive(try);
  note(try, nexarStreamSynchronize(try->stream));
}

static void queue_and_destroy(struct try *try) {
  queue_calls(try);
  note(try, nexarCommDestroy(try->comm));
  for (int number = 0; number < QUEUED; number++)
    for (int i = 0; i < COUNT; i++) CHECK_EQ(RANKS * (i + 1), received[number][i]);
}

/* The initialization of an aborted communicator may succeed, but not a call on it. */
static void join(struct try *try) {
  nexarResult_t result = nexarCommInitRank(&try->comm, RANKS, try->id, rank);
  if (result == nexarSuccess) result = nexarBarrier(try->comm, NULL);
  note(try, result);
}

typedef void action(struct try *try);

struct in_thread {
  action *action;
  struct try *try;
};

static void *run(void *arg) {
  struct in_thread *self = arg;
  atomic_store(&self->try->about_to_call, true);
  self->action(self->try);
  return NULL;
}

/* Starts the action in another thread. It is inside its call after the barrier of all ranks. */
static pthread_t begin(struct in_thread *self) {
  pthread_t thread;
  CHECK_EQ(0, pthread_create(&thread, NULL, run, self));
  while (!atomic_load(&self->try->about_to_call)) sched_yield();
  return thread;
}

static void abort_from_another_thread(struct try *try, action *inside) {
  struct in_thread calling = {inside, try};
  pthread_t thread = begin(&calling);
  meet();
  if (rank == try->leaver) {
    try->began = now_ns();
    CHECK_CODE(nexarSuccess, nexarCommAbort(try->comm));
    long long aborted = now_ns();
    CHECK_EQ(0, pthread_join(thread, NULL));
    if (try->ended < aborted) try->ended = aborted;
  } else {
    CHECK_EQ(0, pthread_join(thread, NULL));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(try->comm));
  }
}

static void abort_while_inside(struct try *try) { abort_from_another_thread(try, call); }

static void abort_while_queued(struct try *try) {
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&try->stream));
  if (rank != try->late) queue_calls(try);
  abort_from_another_thread(try, wait_for_the_queue);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(try->stream));
}

static void abort_while_made(struct try *try) {
  struct in_thread joining = {join, try};
  nexarConfig_t config = NEXAR_CONFIG_INITIALIZER;
  config.blocking = 0;
  pthread_t thread = 0;
  if (rank == try->leaver)
    CHECK_CODE(nexarInProgress,
               nexarCommInitRankConfig(&try->comm, RANKS, try->id, rank, &config));
  else if (rank != try->late)
    thread = begin(&joining);
  meet();
  if (rank == try->leaver) {
    try->began = now_ns();
    note(try, nexarCommAbort(try->comm));
  }
  meet();
  if (rank == try->late) {
    try->began = now_ns();
    join(try);
  } else if (rank != try->leaver) {
    CHECK_EQ(0, pthread_join(thread, NULL));
  }
  if (rank != try->leaver) CHECK_CODE(nexarSuccess, nexarCommDestroy(try->comm));
  /* Peers learn of an abort from the aborting process, which must not exit before they have. */
  meet();
}

static void destroy_while_others_wait(struct try *try) {
  struct in_thread calling = {call, try};
  pthread_t thread = 0;
  try->late = try->leaver;
  if (rank != try->leaver) thread = begin(&calling);
  meet();
  if (rank == try->leaver) {
    try->began = now_ns();
    note(try, nexarCommDestroy(try->comm));
  } else {
    CHECK_EQ(0, pthread_join(thread, NULL));
    CHECK_CODE(nexarSuccess, nexarCommDestroy(try->comm));
  }
}

static void destroy_while_queued(struct try *try) {
  struct in_thread destroying = {queue_and_destroy, try};
  pthread_t thread = 0;
  try->function = ALL_REDUCE;
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&try->stream));
  if (rank != try->leaver) thread = begin(&destroying);
  meet();
  if (rank == try->leaver) {
    try->began = now_ns();
    queue_and_destroy(try);
  } else {
    CHECK_EQ(0, pthread_join(thread, NULL));
  }
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(try->stream));
}

static const struct {
  const char *name;
  action *action;
  bool makes_its_own;
} ways[] = {
    {"abort", abort_while_inside, false},
    {"abort_queued", abort_while_queued, false},
    {"abort_init", abort_while_made, true},
    {"destroy", destroy_while_others_wait, false},
    {"destroy_queued", destroy_while_queued, false},
};

int main(int argc, char **argv) {
  if (argc != 3) return 2;
  size_t way = 0;
  while (way < COUNT_OF(ways) && strcmp(ways[way].name, argv[1]) != 0) way++;
  if (way == COUNT_OF(ways)) return 2;
  begin_watch();
  for (int i = 0; i < RANKS * COUNT; i++) sent[i] = i + 1;
  if (nexarCommInitFromEnv(&world) != nexarSuccess) return 1;
  CHECK_CODE(nexarSuccess, nexarCommUserRank(world, &rank));
  for (int number = 0; number < atoi(argv[2]) && !check_failures; number++) {
    struct try try = {.function = waiting_calls[(size_t)number % COUNT_OF(waiting_calls)]};
    try.leaver = number % RANKS;
    try.late = (try.leaver + 1 + number / RANKS % (RANKS - 1)) % RANKS;
    if (ways[way].makes_its_own) {
      if (rank == 0) CHECK_CODE(nexarSuccess, nexarGetUniqueId(&try.id));
      CHECK_CODE(nexarSuccess, nexarBcast(&try.id, sizeof try.id, nexarInt8, 0, world, NULL));
    } else {
      CHECK_CODE(nexarSuccess, nexarCommSplit(world, 0, 0, &try.comm, NULL));
    }
    ways[way].action(&try);
    progress();
    printf("%d|%lld|%lld|%d|%s\n", try.leaver, try.began, try.ended, (int)try.result, try.text);
  }
  CHECK_CODE(nexarSuccess, nexarCommDestroy(world));
  return check_failures != 0;
}
