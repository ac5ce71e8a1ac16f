/*
 * Compares the results of MPI and nexar: compare <directory> <ranks>. Integers must be equal,
 * floats must agree within the bound in the record.
 */
#include "operations.h"

enum { MOST_PRINTED = 10 /* differences */ };

static double element(enum type type, const void *at, size_t index) {
  return type == FLOAT ? (double)((const float *)at)[index] : ((const double *)at)[index];
}

static bool differs(const struct record *record, const void *mpi, const void *nexar,
                    const double *bounds, size_t i) {
  size_t size = type_sizes[record->type];
  if (memcmp((const char *)mpi + i * size, (const char *)nexar + i * size, size) == 0) return false;
  if (record->type < FLOAT) return true;
  double one = element(record->type, mpi, i), other = element(record->type, nexar, i);
  return !(fabs(one - other) <= bounds[i]);
}

static void *must_read(FILE *file, size_t size, size_t count) {
  void *data = malloc(size * count + 1);
  if (!data || fread(data, size, count, file) != count) {
    fprintf(stderr, "a file ends within a record\n");
    exit(1);
  }
  return data;
}

/* Returns how many elements of a rank differ. Adds its records to `records`. */
static size_t compare(const char *directory, int rank, size_t *records) {
  FILE *files[2];
  size_t wrong = 0;
  for (int i = 0; i < 2; i++) {
    char path[4096];
    snprintf(path, sizeof path, "%s/%s.%d", directory, i ? "nexar" : "mpi", rank);
    files[i] = fopen(path, "rb");
    if (!files[i]) return perror(path), 1;
  }
  struct record one, other;
  while (fread(&one, sizeof one, 1, files[0]) == 1) {
    if (fread(&other, sizeof other, 1, files[1]) != 1 || memcmp(&one, &other, sizeof one) != 0) {
      fprintf(stderr, "rank %d: nexar has no result for %s\n", rank, one.name);
      return wrong + 1;
    }
    void *mpi = must_read(files[0], type_sizes[one.type], one.count);
    double *bounds = must_read(files[0], sizeof *bounds, one.count);
    void *nexar = must_read(files[1], type_sizes[one.type], one.count);
    free(must_read(files[1], sizeof *bounds, one.count));
    size_t first = 0, different = 0;
    for (size_t i = one.count; i-- > 0;)
      if (differs(&one, mpi, nexar, bounds, i)) first = i, different++;
    if (different && wrong < MOST_PRINTED)
      fprintf(stderr, "rank %d: %s differs in %zu elements, first in number %zu\n", rank, one.name,
              different, first);
    wrong += different;
    ++*records;
    free(mpi);
    free(bounds);
    free(nexar);
  }
  if (fread(&other, sizeof other, 1, files[1]) == 1) return wrong + 1;
  fclose(files[0]);
  fclose(files[1]);
  return wrong;
}

int main(int argc, char **argv) {
  size_t wrong = 0, records = 0;
  if (argc != 3) return 2;
  for (int rank = 0; rank < atoi(argv[2]); rank++) wrong += compare(argv[1], rank, &records);
  printf("%zu results of %s ranks, %zu elements differ\n", records, argv[2], wrong);
  return wrong != 0 || records == 0;
}
