/*
 * Loads, uses and unloads the library six times. Each round has its own thread, which ends after
 * dlclose: the library's thread-local destructors must not run unmapped code.
 */
#include <dlfcn.h>
#include <nexar.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>

#include "support/progress.h"

#define REQUIRE(condition, ...)                                                                    \
  do {                                                                                             \
    if (!(condition)) {                                                                            \
      fprintf(stderr, "%s:%d: " #condition ": ", __FILE__, __LINE__);                              \
      fprintf(stderr, __VA_ARGS__);                                                                \
      fputc('\n', stderr);                                                                         \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

/* The library's function of that name, with its type in the header. */
#define FUNCTION(library, name) ((__typeof__(&name))symbol(library, #name))

static void *symbol(void *library, const char *name) {
  void *address = dlsym(library, name);
  REQUIRE(address != NULL, "%s", dlerror());
  return address;
}

struct round {
  const char *path;
  int mode;
};

static void *load_use_unload(void *argument) {
  const struct round *round = argument;
  void *library = dlopen(round->path, round->mode);
  REQUIRE(library != NULL, "%s", dlerror());

  nexarComm_t comm = NULL;
  nexarResult_t result = FUNCTION(library, nexarCommInitAll)(&comm, 1, NULL);
  REQUIRE(result == nexarSuccess, "%s", FUNCTION(library, nexarGetLastError)(NULL));

  const float sent[3] = {1, 2, 3};
  float received[3] = {0};
  result = FUNCTION(library, nexarAllReduce)(sent, received, 3, nexarFloat32, nexarSum, comm, NULL);
  REQUIRE(result == nexarSuccess, "%s", FUNCTION(library, nexarGetLastError)(comm));
  for (int i = 0; i < 3; i++) {
    REQUIRE(received[i] == sent[i], "element %d is %g", i, received[i]);
  }

  result = FUNCTION(library, nexarCommDestroy)(comm);
  REQUIRE(result == nexarSuccess, "%s", FUNCTION(library, nexarGetLastError)(NULL));
  REQUIRE(dlclose(library) == 0, "%s", dlerror());
  return NULL;
}

static void run(struct round round) {
  pthread_t thread;
  REQUIRE(pthread_create(&thread, NULL, load_use_unload, &round) == 0, "no thread");
  REQUIRE(pthread_join(thread, NULL) == 0, "no join");
  progress();
}

int main(int argc, char **argv) {
  REQUIRE(argc == 2, "usage: %s path/to/libnexar.so", argv[0]);
  begin_watch();
  for (int i = 0; i < 5; i++) {
    run((struct round){argv[1], RTLD_NOW | RTLD_LOCAL});
    REQUIRE(dlsym(RTLD_DEFAULT, "nexarAllReduce") == NULL, "RTLD_LOCAL made the symbol global");
  }
  run((struct round){argv[1], RTLD_LAZY | RTLD_GLOBAL});
  return 0;
}
