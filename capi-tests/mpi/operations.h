/*
 * Every operation that both MPI and nexar have, on the same data. A library is a table of
 * functions. Each rank writes its results to a file of records.
 */
#ifndef OPERATIONS_H
#define OPERATIONS_H

#include <float.h>
#include <math.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum type { INT32, INT64, FLOAT, DOUBLE, TYPES };
enum op { SUM, PROD, MIN, MAX, BAND, BOR, BXOR, LAND, LOR, LXOR, OPS };
enum { MOST_RANKS = 8 };

static const size_t type_sizes[TYPES] = {4, 8, 4, 8};
static const char *const type_names[TYPES] = {"int32", "int64", "float", "double"};
static const char *const op_names[OPS] = {"sum", "prod", "min",  "max", "band",
                                          "bor", "bxor", "land", "lor", "lxor"};

/* X(operation, its parameters): the operations that both libraries have. */
#define OPERATIONS(X)                                                                              \
  X(all_reduce, (const void *send, void *recv, int count, enum type, enum op))                     \
  X(reduce, (const void *send, void *recv, int count, enum type, enum op, int root))               \
  X(reduce_scatter_block, (const void *send, void *recv, int count, enum type, enum op))           \
  X(reduce_scatter, (const void *send, void *recv, const int *counts, enum type, enum op))         \
  X(scan, (const void *send, void *recv, int count, enum type, enum op))                           \
  X(exscan, (const void *send, void *recv, int count, enum type, enum op))                         \
  X(bcast, (void *data, int count, enum type, int root))                                           \
  X(all_gather, (const void *send, void *recv, int count, enum type))                              \
  X(all_gather_v,                                                                                  \
    (const void *send, int count, void *recv, const int *counts, const int *displs, enum type))    \
  X(all_to_all, (const void *send, void *recv, int count, enum type))                              \
  X(all_to_all_v,                                                                                  \
    (const void *send, const int *sendcounts, const int *sdispls, void *recv,                      \
     const int *recvcounts, const int *rdispls, enum type))                                        \
  X(gather, (const void *send, void *recv, int count, enum type, int root))                        \
  X(gather_v,                                                                                      \
    (const void *send, int count, void *recv, const int *counts, const int *displs, enum type,     \
     int root))                                                                                    \
  X(scatter, (const void *send, void *recv, int count, enum type, int root))                       \
  X(scatter_v,                                                                                     \
    (const void *send, const int *counts, const int *displs, void *recv, int count, enum type,     \
     int root))

struct library {
  const char *name;
  int rank, n;
#define MEMBER(name, parameters) void (*name) parameters;
  OPERATIONS(MEMBER)
};

/* For the initializer of a library whose functions have the names of the operations. */
#define INITIALIZER(name, parameters) .name = name,

/* The head of a result. The elements follow, then the bounds by which floats may differ. */
struct record {
  char name[80];
  uint64_t type, count;
};

struct run {
  const struct library *library;
  FILE *file;
};

static inline uint64_t noise(int rank, size_t index) {
  uint64_t x = (uint64_t)(rank + 1) * UINT64_C(0x9e3779b97f4a7c15);
  x += index * UINT64_C(0xd1b54a32d192ed03);
  x = (x ^ x >> 29) * UINT64_C(0xbf58476d1ce4e5b9);
  return x ^ x >> 32;
}

/* Sums and products of integers do not overflow, which MPI does not define. */
static inline int64_t integer_input(enum op op, int rank, size_t index) {
  uint64_t random = noise(rank, index);
  switch (op) {
    case SUM: return (int64_t)(random % 2000001) - 1000000;
    case PROD: return (int64_t)(random % 7) - 3;
    case LAND:
    case LOR:
    case LXOR: return random % 3 ? (int64_t)(random >> 8 & 0xff) : 0;
    default: return (int64_t)random >> 33; /* 31 bits, of both signs */
  }
}

/* Numbers of very different magnitudes, so that sums are rounded. */
static inline double real_input(int rank, size_t index) {
  uint64_t random = noise(rank, index);
  double value = ldexp((double)(random >> 11), (int)(random & 15) - 60);
  return random & 16 ? value : -value;
}

static inline double input(enum type type, enum op op, int rank, size_t index) {
  if (type == FLOAT) return (float)real_input(rank, index);
  if (type == DOUBLE) return real_input(rank, index);
  return (double)integer_input(op, rank, index);
}

static inline void put(enum type type, void *at, size_t index, enum op op, int rank, size_t from) {
  switch (type) {
    case INT32: ((int32_t *)at)[index] = (int32_t)integer_input(op, rank, from); return;
    case INT64: ((int64_t *)at)[index] = integer_input(op, rank, from); return;
    case FLOAT: ((float *)at)[index] = (float)real_input(rank, from); return;
    default: ((double *)at)[index] = real_input(rank, from);
  }
}

static inline void *new_input(enum type type, enum op op, int rank, size_t count) {
  unsigned char *data = malloc(count * type_sizes[type] + 1);
  if (!data) abort();
  for (size_t i = 0; i < count; i++) put(type, data, i, op, rank, i);
  return data;
}

static inline void *new_output(enum type type, size_t count) {
  void *data = malloc(count * type_sizes[type] + 1);
  if (!data) abort();
  return memset(data, 0x55, count * type_sizes[type]);
}

/* n times the rounding error of the sum, or product, of the magnitudes of the ranks' elements. */
static inline double bound(enum type type, enum op op, int n, int ranks, size_t index) {
  if (type < FLOAT || (op != SUM && op != PROD)) return 0;
  double magnitude = op == SUM ? 0 : 1;
  for (int rank = 0; rank < ranks; rank++) {
    double element = fabs(input(type, op, rank, index));
    magnitude = op == SUM ? magnitude + element : magnitude * element;
  }
  return n * (type == FLOAT ? FLT_EPSILON : DBL_EPSILON) * magnitude;
}

static inline void write_record(const struct run *run, const char *name, enum type type,
                                const void *data, const double *bounds, size_t count) {
  struct record record = {.type = type, .count = count};
  snprintf(record.name, sizeof record.name, "%s", name);
  fwrite(&record, sizeof record, 1, run->file);
  fwrite(data, type_sizes[type], count, run->file);
  fwrite(bounds, sizeof *bounds, count, run->file);
}

/* Writes the reduction over the first `ranks` ranks of the elements from index `first` on. */
static inline void write_fold(const struct run *run, const char *what, enum type type, enum op op,
                              int ranks, size_t first, const void *data, size_t count) {
  double *bounds = malloc((count + 1) * sizeof *bounds);
  char name[80];
  for (size_t i = 0; i < count; i++)
    bounds[i] = bound(type, op, run->library->n, ranks, first + i);
  snprintf(name, sizeof name, "%s of %zu x %s, %s", what, count, type_names[type], op_names[op]);
  write_record(run, name, type, data, bounds, count);
  free(bounds);
}

static inline void write_copy(const struct run *run, const char *what, enum type type,
                              const void *data, size_t count) {
  double *bounds = calloc(count + 1, sizeof *bounds);
  char name[80];
  snprintf(name, sizeof name, "%s of %zu x %s", what, count, type_names[type]);
  write_record(run, name, type, data, bounds, count);
  free(bounds);
}

/* Lays out blocks of different lengths, some of them empty, with gaps between them. */
static inline size_t lay_out(int n, int count, int seed, int *counts, int *displs) {
  int end = 0;
  for (int i = 0; i < n; i++) {
    counts[i] = (i + seed) % 4 == 3 ? 0 : count * ((i + seed) % 3 + 1) / 2;
    displs[i] = end + 2;
    end = displs[i] + counts[i];
  }
  return (size_t)end;
}

static inline void run_reductions(const struct run *run, enum type type, enum op op, int count) {
  const struct library *l = run->library;
  int counts[MOST_RANKS], displs[MOST_RANKS], before = 0;
  size_t all = lay_out(l->n, count, 0, counts, displs);
  if (all < (size_t)(l->n * count)) all = (size_t)(l->n * count);
  void *send = new_input(type, op, l->rank, all), *recv = new_output(type, all);
  l->all_reduce(send, recv, count, type, op);
  write_fold(run, "all-reduce", type, op, l->n, 0, recv, (size_t)count);
  for (int root = 0; root < l->n; root++) {
    l->reduce(send, recv, count, type, op, root);
    if (l->rank == root) write_fold(run, "reduce", type, op, l->n, 0, recv, (size_t)count);
  }
  l->reduce_scatter_block(send, recv, count, type, op);
  write_fold(run, "reduce-scatter", type, op, l->n, (size_t)(l->rank * count), recv, (size_t)count);
  l->reduce_scatter(send, recv, counts, type, op);
  for (int i = 0; i < l->rank; i++) before += counts[i];
  write_fold(run, "reduce-scatter of blocks", type, op, l->n, (size_t)before, recv,
             (size_t)counts[l->rank]);
  /* nexar makes a single logical operand 0 or 1; MPI does not change it. */
  int fewest = op >= LAND ? 2 : 1;
  l->scan(send, recv, count, type, op);
  if (l->rank + 1 >= fewest)
    write_fold(run, "scan", type, op, l->rank + 1, 0, recv, (size_t)count);
  l->exscan(send, recv, count, type, op);
  if (l->rank >= fewest) /* MPI does not define the result of rank 0 */
    write_fold(run, "exclusive scan", type, op, l->rank, 0, recv, (size_t)count);
  free(send);
  free(recv);
}

static inline void run_moves_with_root(const struct run *run, enum type type, int count, int root) {
  const struct library *l = run->library;
  int counts[MOST_RANKS], displs[MOST_RANKS];
  size_t equal = (size_t)(l->n * count), spread = lay_out(l->n, count, root, counts, displs);
  size_t most = equal > spread ? equal : spread, own = (size_t)counts[l->rank];
  void *send = new_input(type, SUM, l->rank, most), *recv = new_output(type, most);
  memcpy(recv, send, (size_t)count * type_sizes[type]);
  l->bcast(recv, count, type, root);
  write_copy(run, "broadcast", type, recv, (size_t)count);
  l->gather(send, recv, count, type, root);
  if (l->rank == root) write_copy(run, "gather", type, recv, equal);
  l->scatter(send, recv, count, type, root);
  write_copy(run, "scatter", type, recv, (size_t)count);
  l->gather_v(send, (int)own, recv, counts, displs, type, root);
  if (l->rank == root) write_copy(run, "gather of blocks", type, recv, spread);
  l->scatter_v(send, counts, displs, recv, (int)own, type, root);
  write_copy(run, "scatter of blocks", type, recv, own);
  free(send);
  free(recv);
}

static inline void run_moves(const struct run *run, enum type type, int count) {
  const struct library *l = run->library;
  int sendcounts[MOST_RANKS], sdispls[MOST_RANKS], recvcounts[MOST_RANKS], rdispls[MOST_RANKS];
  int theirs[MOST_RANKS], unused[MOST_RANKS], end = 1;
  size_t equal = (size_t)(l->n * count);
  lay_out(l->n, count, l->rank, sendcounts, sdispls);
  size_t gathered = lay_out(l->n, count, 0, recvcounts, rdispls);
  size_t most = 3 * equal + 100;
  void *send = new_input(type, SUM, l->rank, most), *recv = new_output(type, most);
  l->all_gather(send, recv, count, type);
  write_copy(run, "all-gather", type, recv, equal);
  l->all_gather_v(send, recvcounts[l->rank], recv, recvcounts, rdispls, type);
  write_copy(run, "all-gather of blocks", type, recv, gathered);
  l->all_to_all(send, recv, count, type);
  write_copy(run, "all-to-all", type, recv, equal);
  for (int from = 0; from < l->n; from++) {
    lay_out(l->n, count, from, theirs, unused);
    recvcounts[from] = theirs[l->rank];
    rdispls[from] = end;
    end += recvcounts[from] + 1;
  }
  l->all_to_all_v(send, sendcounts, sdispls, recv, recvcounts, rdispls, type);
  write_copy(run, "all-to-all of blocks", type, recv, (size_t)end);
  free(send);
  free(recv);
}

/* Runs all operations. Writes <directory>/<library>.<rank>. */
static inline int run_all(const struct library *library, const char *directory) {
  const int counts[] = {1, 7, 1000, 50001};
  char path[4096];
  snprintf(path, sizeof path, "%s/%s.%d", directory, library->name, library->rank);
  struct run run = {library, fopen(path, "wb")};
  if (!run.file) return perror(path), 1;
  for (enum type type = 0; type < TYPES; type++)
    for (size_t c = 0; c < sizeof counts / sizeof *counts; c++) {
      for (enum op op = 0; op < (type < FLOAT ? OPS : BAND); op++)
        if (c < 3 || op == SUM) run_reductions(&run, type, op, counts[c]);
      for (int root = 0; root < library->n; root++)
        run_moves_with_root(&run, type, counts[c], root);
      run_moves(&run, type, counts[c]);
    }
  if (fclose(run.file) != 0) return perror(path), 1;
  return 0;
}

#endif
