/*
 * Processes without nexar-run join a communicator by a unique id, as in NCCL.
 *
 * Rank 0 creates the id, 128 bytes, and sends it to the others: here through a file; in other
 * programs through MPI, a key-value store or ssh. Every process that has the id can join, so keep
 * it secret.
 *
 *     cc 04_unique_id.c -lnexar
 *     ./a.out 0 2 /tmp/id &  ./a.out 1 2 /tmp/id
 */
#define _POSIX_C_SOURCE 200809L
#include <fcntl.h>
#include <nexar.h>
#include <stdio.h>
#include <stdlib.h>
#include <sys/stat.h>
#include <time.h>
#include <unistd.h>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != nexarSuccess) {                                                                  \
      fprintf(stderr, "%s\n", nexarGetLastError(NULL));                                            \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

static void fail(const char *what) {
  perror(what);
  exit(1);
}

/* Only the owner can read the file. It is renamed when complete, so that no rank reads half of
   it. */
static void write_id(const nexarUniqueId *id, const char *path) {
  char part[4096];
  snprintf(part, sizeof part, "%s.part", path);
  int file = open(part, O_WRONLY | O_CREAT | O_EXCL, S_IRUSR | S_IWUSR);
  if (file < 0 || write(file, id, sizeof *id) != sizeof *id || close(file) != 0) fail(part);
  if (rename(part, path) != 0) fail(path);
}

/* Waits up to a minute for the file. */
static void read_id(nexarUniqueId *id, const char *path) {
  const struct timespec pause = {0, 10 * 1000 * 1000};
  int file = open(path, O_RDONLY);
  for (int tries = 0; file < 0 && tries < 6000; tries++) {
    nanosleep(&pause, NULL);
    file = open(path, O_RDONLY);
  }
  if (file < 0 || read(file, id, sizeof *id) != sizeof *id) fail(path);
  close(file);
}

int main(int argc, char **argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s RANK NRANKS FILE\n", argv[0]);
    return 2;
  }
  int rank = atoi(argv[1]), nranks = atoi(argv[2]);
  const char *path = argv[3];

  nexarUniqueId id;
  if (rank == 0) {
    CHECK(nexarGetUniqueId(&id));
    write_id(&id, path);
  } else {
    read_id(&id, path);
  }

  /* Returns when all ranks have joined. Then all have read the file; an id can be used only
     once. */
  nexarComm_t comm;
  CHECK(nexarCommInitRank(&comm, nranks, id, rank));
  if (rank == 0) remove(path);

  int number = 1 << rank, sum;
  CHECK(nexarAllReduce(&number, &sum, 1, nexarInt32, nexarSum, comm, NULL));
  printf("rank %d of %d has %d, and the sum is %d\n", rank, nranks, number, sum);
  CHECK(nexarCommDestroy(comm));
  return sum != (1 << nranks) - 1;
}
