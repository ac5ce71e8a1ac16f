/*
 * A job is a collective call of all ranks with its input and its expected output, compared bit by
 * bit. This header has what all collectives share; collectives.h has their layouts.
 *
 * A buffer is a list of blocks with filler between them. Memory that a call must not write is
 * compared too: the filler, the input, and the bytes before and after each buffer.
 */
#ifndef JOBS_H
#define JOBS_H

#include "calls.h"
#include "elements.h"
#include "operators.h"
#include "ranks.h"

enum { MOST_BLOCKS = 64 };

/* Lengths of the blocks of a v-form. */
enum lengths { EQUAL, RAGGED /* some are empty */, LONELY /* at most two are not empty */ };

/* Displacements of the blocks: NULL, with gaps before and between, or with the last rank first. */
enum places { PACKED, SPREAD, REVERSED };

struct job {
  const struct collective *collective;
  const struct dtype *dtype;
  struct operator op;
  size_t count; /* of elements; RAGGED blocks have up to twice as many */
  int root;
  enum lengths lengths;
  enum places places;
  int buffers; /* length of the list of a bucketed call */
  bool in_place;
  size_t shift; /* bytes off the alignment of malloc */
  unsigned char *fold; /* the result over all ranks, computed once for ranks that share memory */
};

/* A job whose operator is a sum, unless .op is given. */
#define JOB(collective_, datatype, ...)                                                            \
  ((struct job){.collective = &(collective_), .dtype = dtype_of(datatype), __VA_ARGS__})

enum { MIB_64 = 16 << 20 /* elements of four bytes */ };

enum content { BYTES_OF_STREAM, ELEMENTS_OF_RANK, FOLD_OF_FIRST_RANKS, IDENTITY };

/* Elements `at` to `at + count` of a buffer. */
struct block {
  size_t at, count;
  enum content content;
  int number;   /* the stream, the rank, or the number of ranks that are reduced */
  size_t first; /* the index of its first element in the content */
};

struct layout {
  struct block blocks[MOST_BLOCKS];
  int number;
  size_t extent; /* elements of the buffer */
};

enum { APART = -1 };

/* One rank's part of a job. */
struct share {
  const struct job *job;
  int rank, n;
  nexarComm_t comm;
  void *stream;
  struct created operator;
  struct layout send, recv;
  /* In place: offset of the smaller buffer in the larger one. APART: never in place. */
  long long inside;
  char what[300]; /* description for failed checks */
};

/* Hooks that run calls in memory of another kind. Each of its buffers has an image on the host. */
struct elsewhere {
  /* Sets the addresses for the call. May choose the stream and extend `what`. */
  void (*lend)(struct share *share, const struct guarded *images, int number, unsigned char **at);
  /* After the call: copies the buffers to their images. */
  void (*give_back)(struct share *share, const struct guarded *images, int number);
};
static const struct elsewhere *elsewhere; /* NULL: calls use the images */

struct collective {
  const char *name;
  enum function function;
  void (*lay_out)(struct share *share);
  nexarResult_t (*call)(const struct share *share, const void *send, void *recv);
  bool has_root, has_blocks /* for each rank */, has_lengths, has_displacements;
  bool has_one_buffer, has_no_average;
};

/* Appends a block. */
static inline struct block *add_block(struct layout *layout, size_t count, enum content content,
                                      int number) {
  struct block *block = &layout->blocks[layout->number++];
  *block = (struct block){layout->extent, count, content, number, 0};
  layout->extent += count;
  return block;
}

static inline void put_bytes(unsigned char *at, size_t bytes, int stream) {
  for (size_t i = 0; i < bytes; i += 8) {
    uint64_t eight = mixed((uint64_t)stream, i);
    memcpy(at + i, &eight, bytes - i < 8 ? bytes - i : 8);
  }
}

static inline void put_block(const struct share *share, const struct block *block, void *buffer) {
  const struct job *job = share->job;
  size_t size = job->dtype->size;
  unsigned char *at = (unsigned char *)buffer + block->at * size;
  switch (block->content) {
    case BYTES_OF_STREAM:
      put_bytes(at, block->count * size, block->number);
      return;
    case ELEMENTS_OF_RANK:
      fill(job->dtype, &job->op, share->n, block->number, block->first, at, block->count);
      return;
    case IDENTITY:
      put_identity(job->dtype, &job->op, at, block->count);
      return;
    case FOLD_OF_FIRST_RANKS:
      if (job->fold && block->number == share->n)
        memcpy(at, job->fold + block->first * size, block->count * size);
      else
        fold(job->dtype, &job->op, share->n, block->number, block->first, at, block->count);
  }
}

static inline void put_blocks(const struct share *share, const struct layout *layout,
                              void *buffer) {
  for (int i = 0; i < layout->number; i++) {
    put_block(share, &layout->blocks[i], buffer);
    progress();
  }
}

/* A buffer for a call. Every third rank, in turn, gets memory of nexarMemAlloc. */
static inline struct guarded buffer(const struct share *share, size_t bytes, size_t shift) {
  bool is_shared = ((size_t)share->rank + share->job->count) % 3 == 0;
  return is_shared && !elsewhere ? guarded_and_shared(bytes, shift) : guarded(bytes, shift);
}

/* Makes the call. `send_at`, `recv_at`: byte offsets in the first and in the last buffer. */
static inline void call(struct share *share, const struct guarded *images, int number,
                        size_t send_at, size_t recv_at) {
  unsigned char *at[2] = {images[0].at, images[number - 1].at};
  if (elsewhere) elsewhere->lend(share, images, number, at);
  CHECK_CODE(nexarSuccess, share->job->collective->call(share, at[0] + send_at,
                                                        at[number - 1] + recv_at));
  progress();
  if (elsewhere) elsewhere->give_back(share, images, number);
}

static inline void call_with_two_buffers(struct share *share) {
  size_t size = share->job->dtype->size, shift = share->job->shift;
  size_t send_bytes = share->send.extent * size, recv_bytes = share->recv.extent * size;
  struct guarded images[] = {buffer(share, send_bytes, shift),
                             buffer(share, recv_bytes, 2 * shift)};
  struct guarded send = images[0], recv = images[1];
  struct guarded sent = guarded(send_bytes, 0), expected = guarded(recv_bytes, 0);
  put_blocks(share, &share->send, send.at);
  memcpy(sent.at, send.at, send_bytes);
  put_blocks(share, &share->recv, expected.at);
  call(share, images, 2, 0, 0);
  CHECK_SAME(expected.at, recv.at, recv_bytes, share->what);
  CHECK_SAME(sent.at, send.at, send_bytes, share->what);
  check_guards(send);
  check_guards(recv);
  check_guards(sent);
  check_guards(expected);
}

static inline void call_in_place(struct share *share) {
  size_t size = share->job->dtype->size, inside = (size_t)share->inside * size;
  bool send_is_inside = share->send.extent <= share->recv.extent;
  size_t bytes = (send_is_inside ? share->recv.extent : share->send.extent) * size;
  size_t send_at = send_is_inside ? inside : 0, recv_at = send_is_inside ? 0 : inside;
  struct guarded both = buffer(share, bytes, share->job->shift), expected = guarded(bytes, 0);
  put_blocks(share, &share->send, both.at + send_at);
  memcpy(expected.at, both.at, bytes);
  put_blocks(share, &share->recv, expected.at + recv_at);
  call(share, &both, 1, send_at, recv_at);
  CHECK_SAME(expected.at, both.at, bytes, share->what);
  check_guards(both);
  check_guards(expected);
}

/* A rank function: makes this rank's call of the job `arg`, which all ranks may share. */
static inline void call_and_compare(int rank, int n, nexarComm_t comm, void *arg) {
  const struct job *job = arg;
  struct share share = {.job = job, .rank = rank, .n = n, .comm = comm};
  snprintf(share.what, sizeof share.what,
           "%s of %zu x %s, op %d, rank %d of %d, root %d, lengths %d, places %d%s, shift %zu",
           job->collective->name, job->count, job->dtype->name, (int)job->op.known, rank, n,
           job->root, (int)job->lengths, (int)job->places, job->in_place ? ", in place" : "",
           job->shift);
  create_operator(&share.operator, &job->op, job->dtype, rank, comm);
  job->collective->lay_out(&share);
  if ((job->in_place || job->collective->has_one_buffer) && share.inside != APART)
    call_in_place(&share);
  else
    call_with_two_buffers(&share);
  destroy_operator(&share.operator, &job->op, comm);
  progress();
}

/* Elements to reduce, if a rank receives the result over all ranks; else 0. */
static inline size_t elements_folded(int n, const struct job *job) {
  struct share share = {.job = job, .rank = job->root, .n = n};
  job->collective->lay_out(&share);
  size_t elements = 0;
  for (int i = 0; i < share.send.number; i++) {
    const struct block *block = &share.send.blocks[i];
    if (elements < block->first + block->count) elements = block->first + block->count;
  }
  const struct block *result = &share.recv.blocks[0];
  bool folded = result->content == FOLD_OF_FIRST_RANKS && result->number == n;
  return share.recv.number > 0 && folded ? elements : 0;
}

/* Runs a job on n ranks. */
static inline void run_job(int n, struct job job) {
  n = size_of_job(n);
  job.root %= n;
  if (!can_run(n)) return; /* before the work of the oracle */
  size_t count = elements_folded(n, &job);
  if (count) job.fold = malloc(count * job.dtype->size);
  fold(job.dtype, &job.op, n, n, 0, job.fold, count);
  progress();
  run_ranks(n, call_and_compare, &job);
  free(job.fold);
}

/* Runs a job in place and not, aligned and not, and with every root. */
static inline void run_every_way(int n, struct job job) {
  const struct collective *collective = job.collective;
  for (job.root = 0; job.root < (collective->has_root ? n : 1); job.root++)
    for (int in_place = collective->has_one_buffer; in_place < 2; in_place++)
      for (size_t shift = 0; shift < 2; shift++) {
        if (collective->has_root && shift != (size_t)job.root % 2) continue;
        job.in_place = in_place;
        job.shift = shift;
        run_job(n, job);
      }
}

/* Runs a job with every count of FOR_COUNTS; all large blocks together have about that count. */
static inline void run_every_count(struct job job) {
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    FOR_COUNTS(count, sizes[i]) {
      bool divided = job.collective->has_blocks && count > 65537;
      job.count = divided ? count / (size_t)sizes[i] + 3 : count;
      run_every_way(sizes[i], job);
    }
}

/* Runs a v-form with every kind of lengths and places; large blocks with one kind only. */
static inline void run_every_layout(struct job job) {
  const size_t counts[] = {0, 1, 1001, 65537};
  for (size_t i = 0; i < COUNT_OF(sizes); i++)
    for (size_t c = 0; c < COUNT_OF(counts); c++)
      for (job.lengths = EQUAL; job.lengths <= LONELY; job.lengths++)
        for (job.places = PACKED; job.places <= REVERSED; job.places++) {
          bool usual = job.lengths == RAGGED && (int)job.places == sizes[i] % 3;
          if ((counts[c] == 0 || counts[c] == 65537) && !usual) continue;
          if (job.places != PACKED && !job.collective->has_displacements) continue;
          job.count = counts[c];
          run_every_way(sizes[i], job);
        }
}

/* Runs a job with every type and every operator of the header that is defined on it. */
static inline void run_every_operator(int n, struct job job) {
  for (size_t d = 0; d < COUNT_OF(dtypes); d++)
    for (size_t o = 0; o < COUNT_OF(ops); o++) {
      if (!is_defined(ops[o], &dtypes[d])) continue;
      if (ops[o] == nexarAvg && job.collective->has_no_average) continue;
      job.dtype = &dtypes[d];
      job.op.known = ops[o];
      job.root = (int)o % n;
      job.in_place = o % 2;
      job.shift = o % 3;
      run_job(n, job);
    }
}

static inline void run_every_type(int n, struct job job) {
  for (size_t d = 0; d < COUNT_OF(dtypes); d++) {
    job.dtype = &dtypes[d];
    job.root = (int)d % n;
    job.in_place = d % 2;
    job.shift = d % 3;
    run_job(n, job);
  }
}

#endif
