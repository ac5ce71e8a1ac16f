/*
 * A call of several pieces is a pipeline: before the stream waits for a piece it has fetched the
 * next ones, so that they are there as soon as the network is free, and a result is stored before
 * the next one is awaited. Shown by the order of what the stream did, as the driver's trace tells
 * it; whether that saves time is left to bench/cuda_overlap.sh.
 *
 * Ranks are processes. Copies are slow, so that the call returns before they are made.
 */
#include "device_rank.h"

enum { PIECE = 8 << 20, PIECES = 7, BYTES = (PIECES - 1) * PIECE + 4096, PLACES = 4 };

/* When an operation of the stream began and ended, as places in the trace. */
struct span {
  long begin, end;
};

/* What the stream did with a piece. */
struct piece {
  struct span fetch, tell, wait, store;
};

static struct piece pieces[PIECES];

enum { FETCH, TELL, WAIT, STORE, KINDS };
static const char *const kinds[KINDS] = {"D2H", "write", "wait", "H2D"};

static int kind_of(const char *name) {
  int kind = 0;
  while (kind < KINDS && strcmp(name, kinds[kind]) != 0) kind++;
  return kind;
}

static struct span *span_of(struct piece *piece, int kind) {
  switch (kind) {
    case FETCH: return &piece->fetch;
    case TELL: return &piece->tell;
    case WAIT: return &piece->wait;
    default: return &piece->store;
  }
}

/* The kth operation of a kind is that of piece k: a stream keeps its order. */
static void read_pieces(long long stream) {
  char line[300], what[20], name[40];
  int begun[KINDS + 1] = {0}, ended[KINDS + 1] = {0};
  long long on;
  FILE *file = read_trace();
  for (long place = 1; fgets(line, sizeof line, file); place++) {
    if (sscanf(line, "%*s %19s %lld %39s", what, &on, name) != 3 || on != stream) continue;
    bool begins = strcmp(what, "begin") == 0;
    int kind = kind_of(name), number = begins ? begun[kind]++ : ended[kind]++;
    if (kind == KINDS || number >= PIECES) continue;
    struct span *span = span_of(&pieces[number], kind);
    *(begins ? &span->begin : &span->end) = place;
  }
  fclose(file);
  CHECK_EQ(PIECES, ended[FETCH]);
  CHECK_EQ(PIECES + 1, ended[TELL]); /* the last says that all is done */
  CHECK_EQ(PIECES, ended[WAIT]);
  CHECK_EQ(PIECES, ended[STORE]);
}

static void check_order(void) {
  for (int k = 0; k < PIECES; k++) {
    const struct piece *piece = &pieces[k];
    CHECK(piece->fetch.end < piece->tell.begin && piece->tell.end < piece->wait.begin);
    CHECK(piece->wait.end < piece->store.begin);
    for (int next = k + 1; next < PIECES && next < k + PLACES; next++) {
      /* It is on its way before anybody waits for this one. */
      CHECK(pieces[next].fetch.end < piece->wait.begin);
      CHECK(pieces[next].tell.end < piece->wait.begin);
    }
    /* A place is used again as soon as its result was stored, before the next one is awaited. */
    if (k + PLACES >= PIECES) continue;
    CHECK(piece->store.end < pieces[k + PLACES].fetch.begin);
    CHECK(pieces[k + PLACES].fetch.begin < pieces[k + 1].wait.begin);
  }
}

static void call_in_pieces(int rank, int n, nexarComm_t comm, void *arg) {
  (void)arg;
  struct side side = take_device(rank, n, 0, BYTES);
  library_calls();
  side.comm = join_another(rank, n, comm);
  own_calls();
  check_it_works_on(&side, side.stream);
  fakecuda_reset_trace();
  library_calls();
  nexarResult_t result =
      nexarAllReduce(device_pointer(side.send), device_pointer(side.recv), BYTES / 4, nexarUint32,
                     nexarSum, side.comm, side.stream);
  own_calls();
  CHECK_CODE(nexarSuccess, result);
  /* The copies alone take longer than the call may. */
  CHECK(fakecuda_pending(side.stream) > 0);
  OK(cuStreamSynchronize(side.stream));
  const uint32_t *seen = view(side.recv, BYTES);
  size_t wrong = 0;
  for (size_t i = 0; i < BYTES / 4; i++) {
    uint32_t sum = 0;
    for (int r = 0; r < n; r++) sum += sent(r, i);
    wrong += seen[i] != sum;
  }
  CHECK_EQ(0, wrong);
  read_pieces(fakecuda_stream_number(side.stream));
  check_order();
  library_calls();
  CHECK_CODE(nexarSuccess, nexarCommDestroy(side.comm));
  own_calls();
  give_back_device(&side);
}
static void the_next_pieces_are_fetched_before_the_first_is_awaited(void) {
  CHECK(ranks_are_processes());
  run_ranks(2, call_in_pieces, NULL);
}

int main(void) {
  static const struct test_case cases[] = {
      CASE(the_next_pieces_are_fetched_before_the_first_is_awaited),
  };
  return RUN(cases);
}
