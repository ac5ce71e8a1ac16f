/*
 * Groups drawn at random: collectives of every kind and messages, on several communicators, in
 * which a process has different ranks. All ranks draw the calls from the same seed. Each rank draws
 * for itself the memory, the streams and the order of communicators. Every byte of every buffer and
 * of its guards is compared.
 *
 *     RANDOM_SECONDS=60 RANDOM_SEED=7 nexar-run -n 3 random_groups
 */
#include "buffers.h"
#include "processes.h"
#include "support/random.h"
#include "device_rank.h"

enum {
  PIECE = 8 << 20,
  MOST_OPS = 20,
  MOST_BYTES = 48 << 20, /* of the buffers of a round on one rank */
  PARTS = 4,
  OF_HOST = STREAMS, /* a stream of nexarStreamCreate */
  MOST_TAG = 3,
};

/* A communicator, also on a process that is no member of it: there comm is NULL. */
struct part {
  nexarComm_t comm;
  int rank, size;
};

/* A buffer of an operation, with its guards. */
struct image {
  enum memory memory;
  bool in_order; /* accessed in the order of a CUDA stream; else by the call itself */
  size_t bytes;
  unsigned char *at, *filled_from, *copied_to;
};

struct op {
  struct job job;
  struct share share;
  int part;
  size_t offsets[2]; /* of the data sent in the first image, and received in the last */
  struct image images[2];
  int number; /* of images: 1 in place */
};

static struct {
  uint64_t random, own_random; /* the first is the same on every rank */
  uint64_t seed, next_id;
  int rank, n, round;
  int only_stream; /* the only CUDA stream of this rank in this round, or -1 */
  struct part parts[PARTS];
  nexarStream_t of_host;
  struct arena arenas[MEMORIES], filled_from, copied_to;
  size_t used[MEMORIES], images_used; /* bytes used of the arenas */
  struct op ops[MOST_OPS];
  int number;
} program;

static int shared(int limit) { return below(&program.random, limit); }
static int own(int limit) { return below(&program.own_random, limit); }

/* Messages as a collective: each rank sends to the rank `distance` after it, perhaps to itself. */
static int peer_at(const struct share *s, int distance) {
  return (s->rank + distance + s->n) % s->n;
}

static void lay_out_shift(struct share *s) {
  int distance = s->job->root;
  add_block(&s->send, s->job->count, BYTES_OF_STREAM, stream(s->rank, peer_at(s, distance)));
  add_block(&s->recv, s->job->count, BYTES_OF_STREAM, stream(peer_at(s, -distance), s->rank));
}

static nexarResult_t call_shift(const struct share *s, const void *send, void *recv) {
  int distance = s->job->root;
  return nexarSendRecv(send, s->job->count, peer_at(s, distance), recv, s->job->count,
                       peer_at(s, -distance), s->job->dtype->code, s->comm, s->stream);
}

/* Every rank sends to every rank, each in an order of its own. */
static nexarResult_t call_exchange(const struct share *s, const void *send, void *recv) {
  nexarResult_t results[2 * MOST_RANKS] = {nexarSuccess};
  size_t size = s->job->dtype->size;
  int number = 0, tag = (int)(s->job->count % MOST_TAG);
  CALL(nexarGroupStart());
  for (int i = 0; i < s->n; i++) {
    int to = (i + s->rank) % s->n, from = s->n - 1 - i;
    const struct block *sent = &s->send.blocks[to], *got = &s->recv.blocks[from];
    results[number++] = nexarSendTag((const char *)send + sent->at * size, sent->count,
                                     s->job->dtype->code, to, tag, s->comm, s->stream);
    results[number++] = nexarRecvTag((char *)recv + got->at * size, got->count,
                                     s->job->dtype->code, from, tag, s->comm, s->stream);
  }
  for (int i = 0; i < number; i++) CHECK_CODE(nexarSuccess, results[i]);
  return nexarGroupEnd();
}

static bool is_message(const struct job *job) {
  return job->collective->call == call_shift || job->collective->call == call_exchange;
}

static void lay_out_nothing(struct share *s) { s->inside = APART; }

static nexarResult_t call_barrier(const struct share *s, const void *send, void *recv) {
  return (void)send, (void)recv, nexarBarrier(s->comm, s->stream);
}

static const struct collective others[] = {
    {.name = "SendRecv", .lay_out = lay_out_shift, .call = call_shift, .has_root = true},
    {.name = "messages", .lay_out = lay_out_all_to_all, .call = call_exchange,
     .has_lengths = true, .has_displacements = true},
    {.name = "Barrier", .lay_out = lay_out_nothing, .call = call_barrier},
};

/* No, one or few elements, or about as many as fit one or two pieces. */
static size_t draw_count(int n, size_t size) {
  size_t copies[] = {1, (size_t)n, (size_t)n + 1, 2 * (size_t)n};
  switch (shared(10)) {
    case 0: return 0;
    case 1: return 1;
    case 2: case 3: {
      size_t width = PIECE / copies[shared(COUNT_OF(copies))] / 512 * 512;
      return width / size * (size_t)(1 + shared(2)) + (size_t)shared(3) - 1;
    }
    case 4: return (size_t)shared(1 << 19) | 1;
    default: return (size_t)shared(5000);
  }
}

static struct job draw_job(int n) {
  size_t which = (size_t)shared(COUNT_OF(every_collective) + 2 * COUNT_OF(others));
  bool is_known = which < COUNT_OF(every_collective);
  struct job job = {.collective = is_known ? every_collective[which]
                                           : &others[which % COUNT_OF(others)],
                    .dtype = &dtypes[shared(COUNT_OF(dtypes))],
                    .op.known = ops[shared(COUNT_OF(ops))],
                    .root = shared(n),
                    .lengths = (enum lengths)shared(LONELY + 1),
                    .places = (enum places)shared(REVERSED + 1),
                    .buffers = 1 + shared(4),
                    .in_place = shared(3) == 0 && is_known};
  bool average = job.op.known == nexarAvg && job.collective->has_no_average;
  if (average || !is_defined(job.op.known, job.dtype)) job.op.known = nexarSum;
  job.count = draw_count(n, job.dtype->size);
  return job;
}

/* Makes the contents differ from those of all other operations. */
static void number_blocks(struct layout *layout, uint64_t id) {
  for (int i = 0; i < layout->number; i++) {
    layout->blocks[i].first += id << 32;
    if (layout->blocks[i].content == BYTES_OF_STREAM)
      layout->blocks[i].number += (int)id * MOST_RANKS * MOST_RANKS;
  }
}

static void lay_out(struct op *op, int rank, int n, uint64_t id) {
  op->share = (struct share){.job = &op->job, .rank = rank, .n = n};
  op->job.collective->lay_out(&op->share);
  number_blocks(&op->share.send, id);
  number_blocks(&op->share.recv, id);
}

static size_t bytes_of(const struct op *op) {
  return (op->share.send.extent + op->share.recv.extent) * op->job.dtype->size;
}

/* Draws an operation, the same on all ranks; members store it. Reduces its size if the round would
   need too much memory. */
static void draw_op(size_t *bytes) {
  struct op *op = &program.ops[program.number];
  *op = (struct op){.part = shared(PARTS)};
  const struct part *part = &program.parts[op->part];
  uint64_t id = program.next_id++;
  size_t most = 0;
  op->job = draw_job(part->size);
  for (int rank = 0; rank < part->size; rank++) {
    lay_out(op, rank, part->size, id);
    if (most < bytes_of(op)) most = bytes_of(op);
  }
  if (*bytes + most > MOST_BYTES) {
    op->job.count %= 1000;
  } else {
    *bytes += most;
  }
  if (!part->comm) return;
  lay_out(op, part->rank, part->size, id);
  op->share.comm = part->comm;
  create_operator(&op->share.operator, &op->job.op, op->job.dtype, part->rank, part->comm);
  program.number++;
}

/* Takes memory for a buffer and its guards from an arena. */
static unsigned char *take(struct arena *arena, size_t *used, size_t bytes) {
  size_t from = *used;
  *used = from + (2 * GUARD + bytes + GUARD - 1) / GUARD * GUARD;
  if (*used > arena->bytes) abort();
  return arena->at + from;
}

static void place_image(struct image *image, size_t bytes, bool on_host) {
  do image->memory = memories_in_turn[own(COUNT_OF(memories_in_turn))];
  while (on_host && is_on_device(image->memory));
  size_t *used = &program.images_used, before = *used;
  image->bytes = bytes;
  image->at = take(&program.arenas[image->memory], &program.used[image->memory], bytes);
  image->filled_from = take(&program.filled_from, used, bytes);
  *used = before;
  image->copied_to = take(&program.copied_to, used, bytes);
  memset(image->filled_from, GUARD_BYTE, 2 * GUARD + bytes);
  memset(image->copied_to, 0, 2 * GUARD + bytes);
}

/* On stream NULL a call is in stream order if one of its buffers on the device has elements; of a
   send and receive, each half for itself. */
static void find_order(const struct op *op, struct image *first, struct image *last) {
  bool sends = has_elements(&op->share.send) && is_on_device(first->memory);
  bool gets = has_elements(&op->share.recv) && is_on_device(last->memory);
  first->in_order = sends || (gets && !is_message(&op->job));
  last->in_order = gets || (sends && !is_message(&op->job));
}

/* Draws the memory and the stream of an operation. */
static void place_op(struct op *op) {
  struct share *s = &op->share;
  size_t size = op->job.dtype->size, sent = s->send.extent * size, got = s->recv.extent * size;
  int which = own(STREAMS + 1);
  bool on_host = which == OF_HOST || (which == OF_NULL && own(2));
  if (!on_host && program.only_stream >= 0) which = program.only_stream;
  s->stream = which == OF_HOST ? (void *)program.of_host : borrowed.streams[which];
  bool in_place = op->job.in_place || op->job.collective->has_one_buffer;
  op->number = in_place && s->inside != APART ? 1 : 2;
  if (op->number == 1) {
    op->offsets[sent <= got ? 0 : 1] = (size_t)s->inside * size;
    sent = got = sent > got ? sent : got;
  }
  place_image(&op->images[0], sent, on_host);
  if (op->number > 1) place_image(&op->images[1], got, on_host);
  struct image *first = &op->images[0], *last = &op->images[op->number - 1];
  first->in_order = last->in_order = which != OF_HOST && which != OF_NULL;
  if (which == OF_NULL) find_order(op, first, last);
  put_blocks(s, &s->send, first->filled_from + GUARD + op->offsets[0]);
  snprintf(s->what, sizeof s->what,
           "%s of %zu x %s, op %d, rank %d of %d, root %d, lengths %d, places %d%s, "
           "communicator %d, stream %d, %s %s",
           op->job.collective->name, op->job.count, op->job.dtype->name, (int)op->job.op.known,
           s->rank, s->n, op->job.root, (int)op->job.lengths, (int)op->job.places,
           op->number == 1 ? ", in place" : "", op->part, which, memory_names[first->memory],
           memory_names[last->memory]);
}

static void copy_image(const struct op *op, void *to, const void *from, const struct image *image) {
  CUstream stream = op->share.stream == program.of_host ? NULL : op->share.stream;
  size_t bytes = 2 * GUARD + image->bytes;
  if (image->in_order || is_on_device(image->memory))
    copy_on_stream(to, from, bytes, image->memory, stream);
  else
    memcpy(to, from, bytes);
}

static void fill_op(const struct op *op) {
  for (int i = 0; i < op->number; i++)
    copy_image(op, op->images[i].at, op->images[i].filled_from, &op->images[i]);
}

static void copy_out_op(const struct op *op, bool in_order) {
  for (int i = 0; i < op->number; i++)
    if (op->images[i].in_order == in_order)
      copy_image(op, op->images[i].copied_to, op->images[i].at, &op->images[i]);
}

static void call_op(const struct op *op) {
  unsigned char *send = op->images[0].at + GUARD + op->offsets[0];
  unsigned char *recv = op->images[op->number - 1].at + GUARD + op->offsets[1];
  CALL(op->job.collective->call(&op->share, send, recv));
}

/* The sent data is unchanged, except where data was received in place. */
static void check_op(struct op *op) {
  struct image *last = &op->images[op->number - 1];
  put_blocks(&op->share, &op->share.recv, last->filled_from + GUARD + op->offsets[1]);
  for (int i = 0; i < op->number; i++)
    CHECK_SAME(op->images[i].filled_from, op->images[i].copied_to, 2 * GUARD + op->images[i].bytes,
               op->share.what);
}

/* Calls the operations of each communicator in order, the communicators in any order. */
static void call_in_any_order(void) {
  int next[PARTS] = {0}, nested = 0;
  for (int called = 0; called < program.number;) {
    int part = own(PARTS), *i = &next[part];
    while (*i < program.number && program.ops[*i].part != part) ++*i;
    if (*i == program.number) continue;
    if (own(4) == 0) CALL((nested++, nexarGroupStart()));
    call_op(&program.ops[(*i)++]);
    called++;
    if (nested && own(2)) CALL((nested--, nexarGroupEnd()));
  }
  while (nested-- > 0) CALL(nexarGroupEnd());
}

static void synchronize_all(void) {
  for (int i = 0; i < STREAMS; i++) DO(cuStreamSynchronize(borrowed.streams[i]));
  CHECK_CODE(nexarSuccess, nexarStreamSynchronize(program.of_host));
}

static void one_round(void) {
  int number = 1 + shared(MOST_OPS);
  bool grouped = shared(4) > 0;
  size_t bytes = 0;
  program.number = 0;
  program.images_used = 0;
  program.only_stream = own(2) ? own(STREAMS) : -1; /* waits on one stream delay the most */
  memset(program.used, 0, sizeof program.used);
  for (int i = 0; i < number; i++) draw_op(&bytes);
  for (int i = 0; i < program.number; i++) place_op(&program.ops[i]);
  for (int i = 0; i < program.number; i++) fill_op(&program.ops[i]);
  if (grouped) {
    CALL(nexarGroupStart());
    call_in_any_order();
    CALL(nexarGroupEnd());
  } else {
    for (int i = 0; i < program.number; i++) call_op(&program.ops[i]);
  }
  for (int i = 0; i < program.number; i++) copy_out_op(&program.ops[i], true);
  synchronize_all();
  for (int i = 0; i < program.number; i++) copy_out_op(&program.ops[i], false);
  synchronize_all();
  for (int i = 0; i < program.number; i++) check_op(&program.ops[i]);
  for (int i = 0; i < PARTS; i++)
    if (program.parts[i].comm) CHECK_CODE(nexarSuccess, async_error(program.parts[i].comm));
}

/* All ranks, twice; all in the opposite order; all but the last, with the first as the last. */
static void make_parts(void) {
  int rank = program.rank, n = program.n;
  struct part *parts = program.parts;
  bool stays_out = n > 2 && rank == n - 1;
  parts[0] = (struct part){world, rank, n};
  parts[1] = (struct part){join_another(rank, n, world), rank, n};
  parts[2] = (struct part){NULL, n - 1 - rank, n};
  parts[3] = (struct part){NULL, 0, n > 2 ? n - 1 : n};
  CALL(nexarCommSplit(world, 0, -rank, &parts[2].comm, NULL));
  CALL(nexarCommSplit(parts[2].comm, stays_out ? NEXAR_SPLIT_NOCOLOR : 0, rank == 0 ? n : rank,
                      &parts[3].comm, NULL));
  for (int i = 0; i < PARTS; i++) {
    int size = -1;
    if (!parts[i].comm) continue;
    CHECK_CODE(nexarSuccess, nexarCommUserRank(parts[i].comm, &parts[i].rank));
    CHECK_CODE(nexarSuccess, nexarCommCount(parts[i].comm, &size));
    CHECK_EQ(parts[i].size, size);
  }
}

/* Allocates memory of each kind for a round, once: an allocation waits for all streams. */
static void get_memory(void) {
  size_t bytes = MOST_BYTES + MOST_OPS * (size_t)(1 << 20);
  for (int memory = 0; memory < MEMORIES; memory++)
    get_arena(&program.arenas[memory], (enum memory)memory, bytes);
  get_arena(&program.filled_from, PINNED, bytes);
  get_arena(&program.copied_to, PINNED, bytes);
  synchronize_all();
}

static void release_all(void) {
  for (int memory = 0; memory < MEMORIES; memory++)
    free_arena(&program.arenas[memory], (enum memory)memory);
  free_arena(&program.filled_from, PINNED);
  free_arena(&program.copied_to, PINNED);
  CHECK_CODE(nexarSuccess, nexarStreamDestroy(program.of_host));
  for (int i = PARTS - 1; i > 0; i--) CALL(nexarCommDestroy(program.parts[i].comm));
}

/* Whether to continue: until rank 0's time is over, or a check has failed on any rank. */
static bool all_go_on(double until) {
  int32_t reasons_to_end = check_failures > 0 || (program.rank == 0 && seconds_now() >= until);
  CHECK_CODE(nexarSuccess, nexarAllReduce(&reasons_to_end, &reasons_to_end, 1, nexarInt32, nexarSum,
                                          world, NULL));
  return reasons_to_end == 0 && !check_failures;
}

static int number_of(const char *name, int otherwise) {
  const char *text = getenv(name);
  return text ? atoi(text) : otherwise;
}

static void groups_drawn_at_random_give_right_results(void) {
  static char where[100]; /* for the report of a hang */
  if (!ranks_are_processes()) abort();
  CHECK_CODE(nexarSuccess, nexarCommUserRank(world, &program.rank));
  CHECK_CODE(nexarSuccess, nexarCommCount(world, &program.n));
  CHECK_CODE(nexarSuccess, nexarStreamCreate(&program.of_host));
  program.seed = (uint64_t)number_of("RANDOM_SEED", 1);
  program.random = program.seed << 8;
  program.own_random = (program.seed << 8) + 1 + (uint64_t)program.rank;
  make_parts();
  get_memory();
  double until = seconds_now() + number_of("RANDOM_SECONDS", 5);
  do {
    snprintf(where, sizeof where, "round %d of RANDOM_SEED=%d", program.round, (int)program.seed);
    progress_at = where;
    one_round();
    if (check_failures) fprintf(stderr, "    on rank %d, in %s\n", program.rank, where);
    program.round++;
    progress();
  } while (all_go_on(until));
  if (program.rank == 0)
    printf("%d rounds, %d operations\n", program.round, (int)program.next_id);
  release_all();
}

static const struct test_case cases[] = {CASE(groups_drawn_at_random_give_right_results)};

/* ODD_RANKS: settings of the driver of every other rank. */
int main(void) {
  const char *settings = getenv("ODD_RANKS"), *rank = getenv("NEXAR_RANK");
  if (settings && rank && atoi(rank) % 2) put_settings(settings);
  begin_elsewhere();
  fakecuda_mine(0);
  return RUN(cases);
}
