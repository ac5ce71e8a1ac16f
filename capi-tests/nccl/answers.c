/*
 * Prints what the functions of a libnccl.so.2 return on a machine without a GPU, one line per call,
 * so that two libraries can be compared:
 *
 *     answers LIBRARY
 */
#include <dlfcn.h>
#include <limits.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define MAGIC 0xcafebeefu

static void *library;

static void *find(const char *name) {
  void *symbol = dlsym(library, name);
  if (!symbol) {
    printf("%s: missing\n", name);
    exit(1);
  }
  return symbol;
}

/* Calls a function of up to eight arguments that are ints or pointers. */
typedef int (*function)(uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t, uintptr_t,
                        uintptr_t);

static int call(const char *name, const uintptr_t arguments[8]) {
  void *symbol = find(name);
  function f;
  memcpy(&f, &symbol, sizeof f);
  const uintptr_t *a = arguments;
  return f(a[0], a[1], a[2], a[3], a[4], a[5], a[6], a[7]);
}

#define ASK(what, name, ...)                                                                       \
  printf("%s, %s: %d\n", name, what, call(name, (uintptr_t[8]){__VA_ARGS__}))
#define AT(object) (uintptr_t)&(object)

typedef struct { char internal[128]; } id_t_;
typedef int (*init_rank)(void **, int, id_t_, int);
typedef int (*init_rank_config)(void **, int, id_t_, int, void *);

static void versions_and_texts(void) {
  int version = 0;
  ASK("NULL", "ncclGetVersion", 0);
  ASK("not NULL", "ncclGetVersion", AT(version));
  printf("five digits: %d\n", version > 20000 && version < 30000);
  void *symbol = find("ncclGetErrorString");
  const char *(*text)(int);
  memcpy(&text, &symbol, sizeof text);
  for (int result = -1; result < 12; result++) printf("text of %d: %s\n", result, text(result));
}

static void ids(void) {
  id_t_ id;
  ASK("NULL", "ncclGetUniqueId", 0);
  ASK("not NULL", "ncclGetUniqueId", AT(id));
}

static void ends_with_null(void) {
  ASK("NULL", "ncclCommDestroy", 0);
  ASK("NULL", "ncclCommAbort", 0);
  ASK("NULL", "ncclCommFinalize", 0);
  ASK("NULL", "ncclMemFree", 0);
}

static void groups(void) {
  ASK("without a start", "ncclGroupEnd", 0);
  ASK("once", "ncclGroupStart", 0);
  ASK("twice", "ncclGroupStart", 0);
  ASK("inner", "ncclGroupEnd", 0);
  ASK("outer", "ncclGroupEnd", 0);
  ASK("once more", "ncclGroupEnd", 0);
  float x = 0;
  ASK("of a failed call", "ncclGroupStart", 0);
  ASK("no comm, in a group", "ncclAllReduce", AT(x), AT(x), 1, 7, 0, 0, 0);
  ASK("after a failed call", "ncclGroupEnd", 0);
  ASK("after the failed group", "ncclGroupStart", 0);
  ASK("of an empty group", "ncclGroupEnd", 0);
  struct {
    size_t size;
    unsigned magic, version;
    float time;
  } info = {sizeof info, 0x74685283, 23007, -1};
  ASK("of a simulation", "ncclGroupStart", 0);
  ASK("of an empty group", "ncclGroupSimulateEnd", AT(info));
  ASK("behind a simulation", "ncclGroupEnd", 0);
  ASK("without a start", "ncclGroupSimulateEnd", AT(info));
  ASK("of a failed call, simulated", "ncclGroupStart", 0);
  ASK("no comm, in a simulated group", "ncclAllReduce", AT(x), AT(x), 1, 7, 0, 0, 0);
  ASK("after a failed call", "ncclGroupSimulateEnd", AT(info));
  info.magic = 0;
  ASK("without a start, wrong magic", "ncclGroupSimulateEnd", AT(info));
  ASK("of a wrong simulation", "ncclGroupStart", 0);
  ASK("wrong magic", "ncclGroupSimulateEnd", AT(info));
  ASK("behind a wrong simulation", "ncclGroupEnd", 0);
  ASK("of a nested one", "ncclGroupStart", 0);
  ASK("inside it", "ncclGroupStart", 0);
  ASK("inside, wrong magic", "ncclGroupSimulateEnd", AT(info));
  ASK("outside", "ncclGroupEnd", 0);
  ASK("of a refused query", "ncclGroupStart", 0);
  ASK("NULL, in a group", "ncclGetVersion", 0);
  ASK("after a refused query", "ncclGroupEnd", 0);
}

static void calls_without_a_communicator(void) {
  float x = 0;
  int number = 0;
  uint64_t large = 0;
  void *pointer = NULL;
  uintptr_t at = AT(x);
  ASK("no comm", "ncclAllReduce", at, at, 1, 7, 0, 0, 0);
  ASK("no comm", "ncclReduce", at, at, 1, 7, 0, 0, 0, 0);
  ASK("no comm", "ncclBroadcast", at, at, 1, 7, 0, 0, 0);
  ASK("no comm", "ncclBcast", at, 1, 7, 0, 0, 0);
  ASK("no comm", "ncclAllGather", at, at, 1, 7, 0, 0);
  ASK("no comm", "ncclReduceScatter", at, at, 1, 7, 0, 0, 0);
  ASK("no comm", "ncclAlltoAll", at, at, 1, 7, 0, 0);
  ASK("no comm", "ncclGather", at, at, 1, 7, 0, 0, 0);
  ASK("no comm", "ncclScatter", at, at, 1, 7, 0, 0, 0);
  ASK("no comm", "ncclSend", at, 1, 7, 0, 0, 0);
  ASK("no comm", "ncclRecv", at, 1, 7, 0, 0, 0);
  ASK("no comm, wrong type", "ncclAllReduce", at, at, 1, 99, 0, 0, 0);
  ASK("no comm, count 0", "ncclAllReduce", at, at, 0, 7, 0, 0, 0);
  ASK("no comm", "ncclCommCount", 0, AT(number));
  ASK("no comm", "ncclCommUserRank", 0, AT(number));
  ASK("no comm", "ncclCommCuDevice", 0, AT(number));
  ASK("no comm", "ncclCommGetAsyncError", 0, AT(number));
  ASK("no comm", "ncclCommSplit", 0, 0, 0, AT(pointer), 0);
  ASK("no comm", "ncclCommRevoke", 0, 0);
  ASK("no comm", "ncclCommRegister", 0, at, 4, AT(pointer));
  ASK("no comm", "ncclCommDeregister", 0, 0);
  ASK("no comm", "ncclCommWindowRegister", 0, at, 4, AT(pointer), 0);
  ASK("no comm", "ncclCommSuspend", 0, 1);
  ASK("no comm", "ncclCommResume", 0);
  ASK("no comm", "ncclCommMemStats", 0, 0, AT(large));
  ASK("no comm", "ncclCommGetUniqueId", 0, 0);
  ASK("no comm", "ncclRedOpCreatePreMulSum", AT(number), at, 7, 1, 0);
  ASK("no comm", "ncclRedOpDestroy", 0, 0);
}

static void invalid_inits(void) {
  id_t_ id;
  void *comm = NULL, *symbol = find("ncclCommInitRank");
  init_rank init;
  init_rank_config init_config;
  memcpy(&init, &symbol, sizeof init);
  symbol = find("ncclCommInitRankConfig");
  memcpy(&init_config, &symbol, sizeof init_config);
  call("ncclGetUniqueId", (uintptr_t[8]){AT(id)});
  static const int worlds[][2] = {{0, 0}, {-1, 0}, {2, 2}, {2, -1}, {1, 1}};
  for (size_t i = 0; i < sizeof worlds / sizeof *worlds; i++)
    printf("ncclCommInitRank, rank %d of %d: %d\n", worlds[i][1], worlds[i][0],
           init(&comm, worlds[i][0], id, worlds[i][1]));
  printf("ncclCommInitRank, NULL: %d\n", init(NULL, 1, id, 0));
  struct {
    size_t size;
    unsigned magic, version;
    int fields[26];
  } config = {120, 0, 23203, {0}};
  for (int i = 0; i < 26; i++) config.fields[i] = INT_MIN;
  config.fields[4] = config.fields[5] = config.fields[8] = config.fields[9] = 0; /* pointers */
  printf("ncclCommInitRankConfig, wrong magic: %d\n", init_config(&comm, 1, id, 0, &config));
  config.magic = MAGIC;
  config.fields[0] = 2;
  printf("ncclCommInitRankConfig, blocking 2: %d\n", init_config(&comm, 1, id, 0, &config));
  config.fields[0] = 1;
  config.fields[2] = 0;
  printf("ncclCommInitRankConfig, minCTAs 0: %d\n", init_config(&comm, 1, id, 0, &config));
  ASK("2 devices", "ncclCommInitAll", AT(comm), 2, 0);
  ASK("-1 devices", "ncclCommInitAll", AT(comm), (uintptr_t)-1, 0);
  ASK("NULL", "ncclCommInitAll", 0, 1, 0);
  ASK("no ids", "ncclCommInitRankScalable", AT(comm), 2, 0, 1, 0, 0);
  ASK("0 ids", "ncclCommInitRankScalable", AT(comm), 2, 0, 0, AT(id), 0);
}

static void encryption(void) {
  struct {
    size_t size;
    unsigned magic, version;
    int mode;
    const char *key;
  } config = {sizeof config, MAGIC, 23203, 0, NULL};
  ASK("NULL", "ncclSetEncryption", 0);
  ASK("none", "ncclSetEncryption", AT(config));
  config.mode = 7;
  ASK("mode 7", "ncclSetEncryption", AT(config));
  config.mode = 1;
  ASK("a key, but NULL", "ncclSetEncryption", AT(config));
  config.key = "a key of at least thirty-two bytes";
  ASK("a key", "ncclSetEncryption", AT(config));
  config.magic = 1;
  ASK("wrong magic", "ncclSetEncryption", AT(config));
}

static void last_error(void) {
  void *symbol = find("ncclGetLastError");
  const char *(*text)(void *);
  memcpy(&text, &symbol, sizeof text);
  printf("a last error exists: %d\n", text(NULL) && *text(NULL));
}

int main(int argc, char **argv) {
  setvbuf(stdout, NULL, _IOLBF, 0); /* keep the lines before a crash */
  library = argc == 2 ? dlopen(argv[1], RTLD_NOW) : NULL;
  if (!library) {
    fprintf(stderr, "usage: answers LIBRARY\n%s\n", argc == 2 ? dlerror() : "");
    return 2;
  }
  versions_and_texts();
  ids();
  ends_with_null();
  groups();
  calls_without_a_communicator();
  invalid_inits();
  last_error();
  encryption();
  return 0;
}
