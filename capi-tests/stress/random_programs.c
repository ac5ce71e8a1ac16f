/*
 * Random programs: collectives, messages, requests, groups, streams and splits on several
 * communicators.
 * Every rank draws the same program from the same seed and runs its part; every result is compared.
 *
 *     random_programs [seconds [seed]]
 *
 * Ranks are threads, or processes of nexar-run. Memory must not grow with time.
 */
#define _GNU_SOURCE
#include <time.h>

#include "support/random.h"
#include "support/ranks.h"

enum {
  MOST_COMMS = 6,
  MOST_STREAMS = 3,
  MOST_OPS = 24, /* that are started before any is compared */
  ROUNDS_BETWEEN_CHECKS = 16,
  GROWTH_KIB = 16 << 10, /* of memory, between the first third of the time and the end */
};

static int seconds = 5;
static uint64_t seed = 1;

/* Element i of the input of a rank in operation number id. */
static int32_t element(uint64_t id, int rank, size_t i) {
  uint64_t state = id * 1000003u + (uint64_t)rank * 7919u + i;
  return (int32_t)draw(&state);
}

enum kind {
  ALLREDUCE, BROADCAST, ALLGATHER, REDUCESCATTER, ALLTOALL, GATHER, SCATTER, SCAN, BARRIER,
  SHIFT,       /* every rank sends to the rank at `distance` */
  ANY_SOURCE,  /* the root receives from any source */
  STATUS,      /* as SHIFT, with a capacity and a status, for odd roots from any source */
  BURST,       /* as SHIFT, with many short messages */
  KINDS,
  PROBE = KINDS, /* the root probes for each message before it receives it: not in a group */
  KINDS_ALONE,
};

enum { MIB = 1 << 20, BURST_MESSAGES = 40 };
enum { LONGEST = 1 << 16, LONGEST_OF_BURST = 10 /* elements */ };

/* A communicator, known to all ranks, members or not. */
struct part {
  bool exists;
  int members[MOST_RANKS], size; /* ranks of the world, by rank */
  int rank;                      /* this rank's own, or -1 */
  nexarComm_t comm;
};

struct op {
  enum kind kind;
  const struct part *part;
  uint64_t id;
  size_t count;
  int root, distance, tag;
  nexarStream_t stream;
  size_t received; /* elements of recv */
  int32_t *send, *recv;
  nexarStatus_t *status; /* of the receive with a capacity */
};

struct program {
  uint64_t random; /* the same on every rank */
  uint64_t next_id;
  int rank;
  struct part parts[MOST_COMMS];
  nexarStream_t streams[MOST_STREAMS];
  struct op ops[MOST_OPS];
  int op_count;
};

/* Elements of messages of 32 B, 16 KiB and 48 KiB, where the protocol changes, and of one more. */
static const size_t borders[] = {8, 9, 4096, 4097, 12288, 12289};

static size_t draw_count(uint64_t *random) {
  switch (below(random, 10)) {
  case 0: return 0;
  case 1: return (size_t)below(random, 60000);
  case 2: return (size_t)below(random, 6000);
  case 3: return borders[below(random, COUNT_OF(borders))];
  case 4: return below(random, 10) ? 1 : MIB / sizeof(int32_t);
  default: return (size_t)below(random, 100);
  }
}

/* The elements that a rank sends to the root of a PROBE: they differ between ranks. */
static size_t probed_count(const struct op *op, int rank) {
  return op->count + (size_t)rank % 3;
}

/* Every rank draws the operation; members allocate its buffers. `kinds`: how many are possible. */
static void draw_op(struct program *program, int kinds, nexarStream_t stream) {
  uint64_t *random = &program->random;
  int index;
  do index = below(random, MOST_COMMS);
  while (!program->parts[index].exists);
  const struct part *part = &program->parts[index];
  struct op op = {.kind = (enum kind)below(random, kinds), .part = part, .stream = stream};
  op.id = program->next_id++;
  op.count = draw_count(random);
  op.root = below(random, part->size);
  op.distance = below(random, part->size);
  op.tag = below(random, 1 << 20);
  if (op.kind == BURST) op.count %= LONGEST_OF_BURST + 1;
  /* Longer buffers than those of a message would hide a leak. */
  if (op.kind != SHIFT && op.kind != STATUS) op.count %= LONGEST;
  if (part->rank < 0) return;

  size_t n = (size_t)part->size, sent = op.count;
  op.received = op.count;
  bool at_root = part->rank == op.root;
  switch (op.kind) {
  case ALLGATHER: op.received *= n; break;
  case REDUCESCATTER: sent *= n; break;
  case ALLTOALL: sent *= n, op.received *= n; break;
  case GATHER: op.received *= at_root ? n : 0; break;
  case SCATTER: sent *= at_root ? n : 0; break;
  case BARRIER: sent = op.received = 0; break;
  case ANY_SOURCE: op.received = at_root ? (op.count + 1) * (n - 1) : 0; sent++; break;
  case STATUS: op.received += 1 + op.count / 4; break;
  case BURST: sent *= BURST_MESSAGES, op.received *= BURST_MESSAGES; break;
  case PROBE: op.received = at_root ? (op.count + 2) * n : 0, sent += 2; break;
  default: break;
  }
  op.send = malloc(sent * sizeof *op.send + 1);
  op.recv = malloc(op.received * sizeof *op.recv + 1);
  for (size_t i = 0; i < sent; i++) op.send[i] = element(op.id, part->rank, i);
  if (op.kind == ANY_SOURCE) op.send[op.count] = part->rank;
  if (op.kind == STATUS) {
    op.status = malloc(sizeof *op.status);
    *op.status = (nexarStatus_t)NEXAR_STATUS_INITIALIZER;
  }
  for (size_t i = 0; i < op.received; i++) op.recv[i] = 0x55555555;
  program->ops[program->op_count++] = op;
}

/* The root finds each message by a probe and puts it where its sender's are. */
static void receive_probed(const struct op *op) {
  const struct part *part = op->part;
  bool seen[MOST_RANKS] = {0};
  for (int i = 0; i < part->size - 1; i++) {
    nexarStatus_t found = NEXAR_STATUS_INITIALIZER;
    CHECK_CODE(nexarSuccess,
               nexarProbeTag(NEXAR_ANY_SOURCE, op->tag, NULL, &found, part->comm));
    int from = found.source;
    bool is_new = from >= 0 && from < part->size && from != op->root && !seen[from];
    CHECK(is_new);
    if (!is_new) return;
    seen[from] = true;
    CHECK_EQ(op->tag, found.tag);
    CHECK_EQ(nexarInt32, found.datatype);
    CHECK_EQ(probed_count(op, from), found.count);
    if (found.count > op->count + 2) return;
    CHECK_CODE(nexarSuccess, nexarRecvTag(op->recv + (size_t)from * (op->count + 2), found.count,
                                          nexarInt32, from, op->tag, part->comm, NULL));
  }
}

static void begin(const struct op *op) {
  const struct part *part = op->part;
  nexarComm_t comm = part->comm;
  nexarStream_t stream = op->stream;
  int n = part->size, rank = part->rank;
  switch (op->kind) {
  case ALLREDUCE:
    CHECK_CODE(nexarSuccess, nexarAllReduce(op->send, op->recv, op->count, nexarInt32, nexarSum,
                                            comm, stream));
    break;
  case BROADCAST:
    CHECK_CODE(nexarSuccess, nexarBroadcast(op->send, op->recv, op->count, nexarInt32, op->root,
                                            comm, stream));
    break;
  case ALLGATHER:
    CHECK_CODE(nexarSuccess,
               nexarAllGather(op->send, op->recv, op->count, nexarInt32, comm, stream));
    break;
  case REDUCESCATTER:
    CHECK_CODE(nexarSuccess, nexarReduceScatter(op->send, op->recv, op->count, nexarInt32,
                                                nexarSum, comm, stream));
    break;
  case ALLTOALL:
    CHECK_CODE(nexarSuccess,
               nexarAllToAll(op->send, op->recv, op->count, nexarInt32, comm, stream));
    break;
  case GATHER:
    CHECK_CODE(nexarSuccess, nexarGather(op->send, op->recv, op->count, nexarInt32, op->root, comm,
                                         stream));
    break;
  case SCATTER:
    CHECK_CODE(nexarSuccess, nexarScatter(op->send, op->recv, op->count, nexarInt32, op->root,
                                          comm, stream));
    break;
  case SCAN:
    CHECK_CODE(nexarSuccess,
               nexarScan(op->send, op->recv, op->count, nexarInt32, nexarSum, comm, stream));
    break;
  case BARRIER: CHECK_CODE(nexarSuccess, nexarBarrier(comm, stream)); break;
  case SHIFT:
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    CHECK_CODE(nexarSuccess, nexarSendTag(op->send, op->count, nexarInt32,
                                          (rank + op->distance) % n, op->tag, comm, stream));
    CHECK_CODE(nexarSuccess, nexarRecvTag(op->recv, op->count, nexarInt32,
                                          (rank - op->distance + n) % n, op->tag, comm, stream));
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    break;
  case ANY_SOURCE:
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    if (rank != op->root)
      CHECK_CODE(nexarSuccess, nexarSendTag(op->send, op->count + 1, nexarInt32, op->root, op->tag,
                                            comm, stream));
    for (int i = 0; rank == op->root && i < n - 1; i++)
      CHECK_CODE(nexarSuccess,
                 nexarRecvTag(op->recv + (size_t)i * (op->count + 1), op->count + 1, nexarInt32,
                              NEXAR_ANY_SOURCE, op->tag, comm, stream));
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    break;
  case STATUS:
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    CHECK_CODE(nexarSuccess, nexarSendTag(op->send, op->count, nexarInt32,
                                          (rank + op->distance) % n, op->tag, comm, stream));
    CHECK_CODE(nexarSuccess,
               nexarRecvTagStatus(op->recv, op->received, nexarInt32,
                                  op->root % 2 ? NEXAR_ANY_SOURCE : (rank - op->distance + n) % n,
                                  op->tag, op->status, comm, stream));
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    break;
  case BURST:
    CHECK_CODE(nexarSuccess, nexarGroupStart());
    for (size_t m = 0; m < BURST_MESSAGES; m++) {
      CHECK_CODE(nexarSuccess,
                 nexarSendTag(op->send + m * op->count, op->count, nexarInt32,
                              (rank + op->distance) % n, op->tag, comm, stream));
      CHECK_CODE(nexarSuccess,
                 nexarRecvTag(op->recv + m * op->count, op->count, nexarInt32,
                              (rank - op->distance + n) % n, op->tag, comm, stream));
    }
    CHECK_CODE(nexarSuccess, nexarGroupEnd());
    break;
  case PROBE:
    if (rank == op->root)
      receive_probed(op);
    else
      CHECK_CODE(nexarSuccess, nexarSendTag(op->send, probed_count(op, rank), nexarInt32, op->root,
                                            op->tag, comm, NULL));
    break;
  case KINDS_ALONE: break;
  }
}

static int32_t expected(const struct op *op, size_t i) {
  size_t count = op->count;
  int n = op->part->size, rank = op->part->rank;
  uint32_t sum = 0;
  switch (op->kind) {
  case ALLREDUCE:
    for (int r = 0; r < n; r++) sum += (uint32_t)element(op->id, r, i);
    return (int32_t)sum;
  case SCAN:
    for (int r = 0; r <= rank; r++) sum += (uint32_t)element(op->id, r, i);
    return (int32_t)sum;
  case REDUCESCATTER:
    for (int r = 0; r < n; r++) sum += (uint32_t)element(op->id, r, (size_t)rank * count + i);
    return (int32_t)sum;
  case BROADCAST: return element(op->id, op->root, i);
  case ALLGATHER: case GATHER: return element(op->id, (int)(i / count), i % count);
  case ALLTOALL: return element(op->id, (int)(i / count), (size_t)rank * count + i % count);
  case SCATTER: return element(op->id, op->root, (size_t)rank * count + i);
  case SHIFT: case BURST: return element(op->id, (rank - op->distance + n) % n, i);
  case STATUS:
    if (i >= count) return 0x55555555; /* beyond the message nothing is written */
    return element(op->id, (rank - op->distance + n) % n, i);
  case PROBE: {
    int from = (int)(i / (count + 2));
    bool is_sent = from != rank && i % (count + 2) < probed_count(op, from);
    return is_sent ? element(op->id, from, i % (count + 2)) : 0x55555555;
  }
  default: return 0;
  }
}

/* The last element of a message to any source is its sender. */
static void check_any_source(const struct op *op) {
  bool seen[MOST_RANKS] = {0};
  for (int m = 0; op->received && m < op->part->size - 1; m++) {
    const int32_t *message = op->recv + (size_t)m * (op->count + 1);
    int sender = message[op->count];
    bool is_new = sender >= 0 && sender < op->part->size && sender != op->root && !seen[sender];
    CHECK(is_new);
    if (!is_new) return;
    seen[sender] = true;
    for (size_t i = 0; i < op->count; i++) CHECK_EQ(element(op->id, sender, i), message[i]);
  }
}

static void check_and_free(struct program *program) {
  for (int o = 0; o < program->op_count; o++) {
    struct op *op = &program->ops[o];
    if (op->kind == ANY_SOURCE)
      check_any_source(op);
    else
      for (size_t i = 0; i < op->received; i++) CHECK_EQ(expected(op, i), op->recv[i]);
    if (op->status) {
      int n = op->part->size;
      CHECK_EQ((op->part->rank - op->distance + n) % n, op->status->source);
      CHECK_EQ(op->tag, op->status->tag);
      CHECK_EQ(op->count, op->status->count);
      CHECK_EQ(nexarInt32, op->status->datatype);
    }
    free(op->status);
    free(op->send);
    free(op->recv);
  }
  program->op_count = 0;
}

static void one_by_one(struct program *program) {
  int count = 1 + below(&program->random, 4);
  for (int i = 0; i < count; i++) draw_op(program, KINDS_ALONE, NULL);
  for (int i = 0; i < program->op_count; i++) begin(&program->ops[i]);
}

/* The order of operations of different communicators differs between ranks. */
static void in_a_group(struct program *program) {
  int count = 1 + below(&program->random, MOST_OPS - 1);
  bool queued = below(&program->random, 3) == 0;
  for (int i = 0; i < count; i++) {
    int which = below(&program->random, MOST_STREAMS);
    draw_op(program, KINDS, queued ? program->streams[which] : NULL);
  }
  CHECK_CODE(nexarSuccess, nexarGroupStart());
  bool nested = below(&program->random, 2);
  for (int turn = 0; turn < MOST_COMMS; turn++) {
    const struct part *part = &program->parts[(turn + program->rank) % MOST_COMMS];
    if (nested) CHECK_CODE(nexarSuccess, nexarGroupStart());
    for (int i = 0; i < program->op_count; i++)
      if (program->ops[i].part == part) begin(&program->ops[i]);
    if (nested) CHECK_CODE(nexarSuccess, nexarGroupEnd());
  }
  CHECK_CODE(nexarSuccess, nexarGroupEnd());
}

static void on_streams(struct program *program) {
  int count = 1 + below(&program->random, MOST_OPS - 1);
  for (int i = 0; i < count; i++)
    draw_op(program, KINDS, program->streams[below(&program->random, MOST_STREAMS)]);
  for (int i = 0; i < program->op_count; i++) begin(&program->ops[i]);
}

/* Shifts by requests, which other operations pass. Each receive is tested before the waits. */
static void with_requests(struct program *program) {
  nexarRequest_t requests[2 * MOST_OPS] = {NULL};
  int count = 1 + below(&program->random, MOST_OPS - 1);
  for (int i = 0; i < count; i++) draw_op(program, KINDS, NULL);
  for (int i = 0; i < program->op_count; i++) {
    const struct op *op = &program->ops[i];
    const struct part *part = op->part;
    if (op->kind != SHIFT) continue;
    CHECK_CODE(nexarSuccess,
               nexarIrecvTag(op->recv, op->count, nexarInt32,
                             (part->rank - op->distance + part->size) % part->size, op->tag,
                             &requests[2 * i], part->comm));
    CHECK_CODE(nexarSuccess, nexarIsendTag(op->send, op->count, nexarInt32,
                                           (part->rank + op->distance) % part->size, op->tag,
                                           &requests[2 * i + 1], part->comm));
  }
  for (int i = 0; i < program->op_count; i++)
    if (program->ops[i].kind != SHIFT) begin(&program->ops[i]);
  for (int i = 0; i < 2 * MOST_OPS; i += 2) {
    int done = 0;
    if (requests[i]) CHECK_CODE(nexarSuccess, nexarRequestTest(requests[i], &done, NULL));
    if (done) requests[i] = NULL;
  }
  for (size_t index = 0; index < 2 * MOST_OPS;)
    if (nexarRequestWaitAny(2 * MOST_OPS, requests, &index, NULL) != nexarSuccess) {
      CHECK(false);
      break;
    }
}

static void synchronize(struct program *program) {
  for (int s = 0; s < MOST_STREAMS; s++)
    CHECK_CODE(nexarSuccess, nexarStreamSynchronize(program->streams[s]));
}

/* Splits one of the communicators by random colors and keys; some ranks have no color. */
static void split(struct program *program) {
  uint64_t *random = &program->random;
  int from, to = 1 + below(random, MOST_COMMS - 1);
  do from = below(random, MOST_COMMS);
  while (!program->parts[from].exists);
  const struct part *parent = &program->parts[from];
  struct part *child = &program->parts[to];
  int colors[MOST_RANKS], keys[MOST_RANKS], own = parent->rank;
  for (int r = 0; r < parent->size; r++) {
    colors[r] = below(random, 3) - 1;
    keys[r] = below(random, 5) - 2;
  }
  int chosen = below(random, 2); /* which of the two parts is kept */
  if (child->exists) return;
  nexarComm_t created = NULL;
  if (own >= 0)
    CHECK_CODE(nexarSuccess, nexarCommSplit(parent->comm, colors[own], keys[own], &created, NULL));
  struct part new = {.exists = true, .rank = -1};
  for (int key = -2; key <= 2; key++)
    for (int r = 0; r < parent->size; r++)
      if (colors[r] == chosen && keys[r] == key) {
        if (r == own) new.rank = new.size;
        new.members[new.size++] = parent->members[r];
      }
  if (new.size == 0) new.exists = false;
  if (new.rank >= 0) {
    new.comm = created;
    int rank = -1, size = -1;
    CHECK_CODE(nexarSuccess, nexarCommUserRank(created, &rank));
    CHECK_CODE(nexarSuccess, nexarCommCount(created, &size));
    CHECK_EQ(new.rank, rank);
    CHECK_EQ(new.size, size);
  } else {
    CHECK_CODE(nexarSuccess, nexarCommDestroy(created));
  }
  *child = new;
}

static void destroy(struct part *part) {
  if (part->exists && part->rank >= 0) CHECK_CODE(nexarSuccess, nexarCommDestroy(part->comm));
  part->exists = false;
}

static void one_round(struct program *program) {
  switch (below(&program->random, 8)) {
  case 0: split(program); break;
  case 1: destroy(&program->parts[1 + below(&program->random, MOST_COMMS - 1)]); break;
  case 2: one_by_one(program); break;
  case 3: with_requests(program); break;
  case 4: case 5: in_a_group(program); break;
  default: on_streams(program); break;
  }
  /* Sometimes a blocking call follows the streamed ones, for which it must wait. */
  if (below(&program->random, 2) && program->op_count < MOST_OPS) {
    int before = program->op_count;
    draw_op(program, KINDS_ALONE, NULL);
    if (program->op_count > before) begin(&program->ops[before]);
  }
  synchronize(program);
  check_and_free(program);
}

static long resident_kib(void) {
  long pages = 0;
  FILE *file = fopen("/proc/self/statm", "r");
  if (!file) return 0;
  if (fscanf(file, "%*s %ld", &pages) != 1) pages = 0;
  fclose(file);
  return pages * (sysconf(_SC_PAGESIZE) / 1024);
}

static void run_program(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct program *program = calloc(1, sizeof *program);
  program->random = seed;
  program->rank = rank;
  program->parts[0] = (struct part){.exists = true, .size = n, .rank = rank, .comm = comm};
  for (int r = 0; r < n; r++) program->parts[0].members[r] = r;
  for (int s = 0; s < MOST_STREAMS; s++)
    CHECK_CODE(nexarSuccess, nexarStreamCreate(&program->streams[s]));

  double start = seconds_now();
  long rounds = 0, early = 0;
  int32_t go_on = 1;
  while (go_on && !check_failures) {
    for (int i = 0; i < ROUNDS_BETWEEN_CHECKS && !check_failures; i++, rounds++) {
      one_round(program);
      progress();
    }
    double passed = seconds_now() - start;
    if (!early && passed > seconds / 3.0) early = resident_kib();
    go_on = passed < seconds; /* rank 0 decides for all */
    CHECK_CODE(nexarSuccess, nexarBcast(&go_on, 1, nexarInt32, 0, comm, NULL));
  }
  long grown = early ? resident_kib() - early : 0;
  CHECK(grown < GROWTH_KIB);
  if (check_failures)
    fprintf(stderr, "seed %llu, %d ranks, in round %ld\n", (unsigned long long)seed, n, rounds);
  if (rank == 0)
    printf("%d ranks: %ld rounds, %llu operations, memory grew by %ld KiB\n", n, rounds,
           (unsigned long long)program->next_id, grown);
  for (int s = 0; s < MOST_STREAMS; s++)
    CHECK_CODE(nexarSuccess, nexarStreamDestroy(program->streams[s]));
  for (int p = 1; p < MOST_COMMS; p++) destroy(&program->parts[p]);
  free(program);
}

static void random_programs_give_right_results(void) {
  run_ranks(size_of_job(4), run_program, NULL);
}

static const struct test_case cases[] = {CASE(random_programs_give_right_results)};

int main(int argc, char **argv) {
  if (argc > 1) seconds = atoi(argv[1]);
  if (argc > 2) seed = strtoull(argv[2], NULL, 0);
  setenv("CHECK_ANY_SIZE", "1", 1);
  return RUN(cases);
}
