/*
 * The NEXAR_* variables. A process reads them at its first call, so every case runs in a child of
 * this process, which itself makes no call.
 */
#define _GNU_SOURCE
#include <dirent.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <sys/wait.h>

#include "support/ranks.h"

/* The scratch directory of this run. */
static char directory[200];

static void path_of(char path[300], const char *name) {
  snprintf(path, 300, "%s/%s", directory, name);
}

static void read_file(const char *name, char *text, size_t size) {
  char path[300];
  path_of(path, name);
  FILE *file = fopen(path, "r");
  size_t length = file ? fread(text, 1, size - 1, file) : 0;
  text[length] = 0;
  if (file) fclose(file);
}

/* Runs the function in a child whose stdout and stderr go to the file "printed". */
static pid_t in_a_child(void (*function)(void)) {
  pid_t child = fork();
  if (child == 0) {
    char path[300];
    path_of(path, "printed");
    int file = open(path, O_WRONLY | O_CREAT | O_TRUNC, 0600);
    if (dup2(file, STDOUT_FILENO) < 0 || dup2(file, STDERR_FILENO) < 0) _exit(2);
    begin_watch();
    int before = check_failures;
    function();
    fflush(NULL);
    _exit(check_failures != before);
  }
  int status = -1;
  CHECK(child > 0 && waitpid(child, &status, 0) == child);
  if (status != 0) {
    char printed[4000];
    read_file("printed", printed, sizeof printed);
    check_failed(__FILE__, __LINE__, "the child ended with %d and printed:\n%s", status, printed);
  }
  return child;
}

static void check_nothing_was_printed(void) {
  char printed[1000];
  read_file("printed", printed, sizeof printed);
  if (printed[0]) check_failed(__FILE__, __LINE__, "printed: %s", printed);
}

/* Reads the log that the child wrote for a rank, or for no rank ("-"). */
static void read_log(pid_t child, const char *rank, char *text, size_t size) {
  char name[60];
  snprintf(name, sizeof name, "log.%d.%s", (int)child, rank);
  read_file(name, text, size);
}

static void log_to_files(const char *level) {
  char path[300];
  path_of(path, "log.%p.%r");
  setenv("NEXAR_DEBUG", level, 1);
  setenv("NEXAR_DEBUG_FILE", path, 1);
}

/* Fails in every way: an invalid argument, an invalid handle, a mismatch, an abort. */
static void fail_in_every_way(void) {
  nexarComm_t comms[2];
  int version, data = 0;
  CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
  CHECK_CODE(nexarInvalidArgument, nexarCommDestroy((nexarComm_t)&version));
  CHECK_CODE(nexarSuccess, nexarCommInitAll(comms, 2, NULL));
  CHECK_CODE(nexarSuccess, nexarAllReduce(&data, &data, 0, nexarInt32, nexarSum, comms[0], NULL));
  CHECK_CODE(nexarInvalidUsage,
             nexarAllReduce(&data, &data, 1, nexarInt32, nexarSum, comms[1], NULL));
  CHECK_CODE(nexarSuccess, nexarCommAbort(comms[0]));
  CHECK_CODE(nexarSuccess, nexarCommDestroy(comms[1]));
  run_ranks(3, it_works, NULL);
}

static const char *wrong_name, *wrong_value, *named_value;

static void a_wrong_value_creates_no_communicator(void) {
  nexarComm_t comm = (nexarComm_t)0x5a5a;
  int version = 0;
  setenv(wrong_name, wrong_value, 1);
  CHECK_CODE(nexarSuccess, nexarGetVersion(&version));
  for (int again = 0; again < 2; again++) {
    CHECK_CODE(nexarInvalidArgument, nexarCommInitAll(&comm, 1, NULL));
    CHECK_TEXT(nexarGetLastError(NULL), "nexarCommInitAll");
    CHECK_TEXT(nexarGetLastError(NULL), wrong_name);
    CHECK_TEXT(nexarGetLastError(NULL), named_value);
    CHECK(comm == (nexarComm_t)0x5a5a);
  }
}

static void wrong_values_are_named_with_their_variable(void) {
  const char *const wrong[][3] = {
      {"NEXAR_OP_TIMEOUT_MS", "abc", "abc"},
      {"NEXAR_OP_TIMEOUT_MS", "0", "=0"},
      {"NEXAR_OP_TIMEOUT_MS", "-5", "-5"},
      {"NEXAR_OP_TIMEOUT_MS", "99999999999999999999", "99999999999999999999"},
      {"NEXAR_ALGO", "allreduce:nonsense", "allreduce:nonsense"},
      {"NEXAR_ALGO", "allreduce:ring,nothing:ring", "nothing:ring"},
      {"NEXAR_DEBUG", "LOUD", "LOUD"},
  };
  for (size_t i = 0; i < COUNT_OF(wrong); i++) {
    wrong_name = wrong[i][0];
    wrong_value = wrong[i][1];
    named_value = wrong[i][2];
    in_a_child(a_wrong_value_creates_no_communicator);
    check_nothing_was_printed();
  }
}

static void nothing_is_printed_unless_asked(void) {
  in_a_child(fail_in_every_way);
  check_nothing_was_printed();
}

static const char *subsystems;

static void with_chosen_subsystems(void) {
  log_to_files("INFO");
  setenv("NEXAR_DEBUG_SUBSYS", subsystems, 1);
  fail_in_every_way();
}

/* The subsystem capi logs calls; comm logs the end of a communicator. */
static void only_chosen_subsystems_are_logged(void) {
  const struct {
    const char *chosen;
    bool capi, comm;
  } choices[] = {{"", true, true},          {"capi", true, false},
                 {"comm", false, true},     {"comm,capi", true, true},
                 {"transport", false, false}, {" COMM , bootstrap", false, true}};
  for (size_t i = 0; i < COUNT_OF(choices); i++) {
    char none[20000], first[20000];
    subsystems = choices[i].chosen;
    pid_t child = in_a_child(with_chosen_subsystems);
    read_log(child, "-", none, sizeof none);
    read_log(child, "0", first, sizeof first);
    CHECK_EQ(choices[i].capi, strstr(none, " capi: ") != NULL);
    CHECK_EQ(choices[i].comm, strstr(first, " comm: ") != NULL);
    check_nothing_was_printed();
  }
}

static void without_a_level(void) {
  char path[300];
  path_of(path, "unasked.%p.%r");
  setenv("NEXAR_DEBUG_FILE", path, 1);
  fail_in_every_way();
}

static void a_log_file_alone_logs_nothing(void) {
  char path[300], text[10];
  pid_t child = in_a_child(without_a_level);
  snprintf(path, sizeof path, "unasked.%d.-", (int)child);
  read_file(path, text, sizeof text);
  CHECK_EQ(0, strlen(text));
  check_nothing_was_printed();
}

static void with_info(void) {
  log_to_files("INFO");
  fail_in_every_way();
}

static void a_log_goes_to_its_file_and_nowhere_else(void) {
  char text[20000];
  pid_t child = in_a_child(with_info);
  check_nothing_was_printed();
  read_log(child, "-", text, sizeof text);
  CHECK_TEXT(text, " nexar INFO ");
  CHECK_TEXT(text, " nexar WARN ");
  CHECK_TEXT(text, "nexarGetVersion: version is NULL");
  read_log(child, "1", text, sizeof text);
  CHECK_TEXT(text, "ranks disagree on call #0");
}

static void with_a_misspelt_name(void) {
  log_to_files("warn");
  setenv("NEXAR_DEBUGFILE", "x", 1);
  run_ranks(1, it_works, NULL);
}

static void an_unknown_name_is_warned_about_with_the_nearest_known_one(void) {
  char text[4000];
  pid_t child = in_a_child(with_a_misspelt_name);
  check_nothing_was_printed();
  read_log(child, "-", text, sizeof text);
  CHECK_TEXT(text, " nexar WARN ");
  CHECK_TEXT(text, "NEXAR_DEBUGFILE is not a setting of nexar; the nearest is NEXAR_DEBUG_FILE");
  CHECK(strstr(text, "INFO") == NULL);
}

static void to_stderr(void) {
  setenv("NEXAR_DEBUG", "WARN", 1);
  CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
}

static void without_a_file_the_log_goes_to_stderr(void) {
  char text[4000];
  in_a_child(to_stderr);
  read_file("printed", text, sizeof text);
  CHECK_TEXT(text, "WARN");
  CHECK_TEXT(text, "nexarGetVersion: version is NULL");
}

static void to_nowhere(void) {
  setenv("NEXAR_DEBUG", "TRACE", 1);
  setenv("NEXAR_DEBUG_FILE", "/nonexistent/directory/log", 1);
  fail_in_every_way();
}

static void a_log_whose_file_cannot_be_opened_goes_to_stderr(void) {
  char printed[4000];
  in_a_child(to_nowhere);
  read_file("printed", printed, sizeof printed);
  CHECK_TEXT(printed, "nexar WARN capi: nexarGetVersion: version is NULL");
}

static atomic_bool forks_done;

static void fail_over_and_over(int thread, int threads, nexarComm_t none, void *arg) {
  (void)thread, (void)threads, (void)none, (void)arg;
  while (!forks_done) CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
}

static void *write_the_log(void *arg) {
  run_threads(3, NULL, fail_over_and_over, arg);
  return NULL;
}

/* The log's lock may be held by a thread that the child does not inherit. */
static void fork_while_others_write_the_log(void) {
  pthread_t thread;
  int status = 0;
  log_to_files("WARN");
  CHECK_CODE(nexarInvalidArgument, nexarGetVersion(NULL));
  CHECK_EQ(0, pthread_create(&thread, NULL, write_the_log, NULL));
  for (int i = 0; i < 200 && status == 0; i++) {
    pid_t child = fork();
    if (child == 0) {
      alarm(PATIENCE_S); /* a child that hangs is ended by the signal */
      _exit(nexarGetVersion(NULL) != nexarInvalidUsage);
    }
    CHECK(waitpid(child, &status, 0) == child);
  }
  CHECK_EQ(0, status);
  forks_done = true;
  CHECK_EQ(0, pthread_join(thread, NULL));
}

static void a_forked_child_is_refused_while_others_write_the_log(void) {
  in_a_child(fork_while_others_write_the_log);
}

static void with_rings(void) {
  setenv("NEXAR_ALGO", "allreduce:ring,barrier:dissemination", 1);
  setenv("NEXAR_OP_TIMEOUT_MS", "30000", 1);
  run_ranks(5, it_works, NULL);
}

static void an_algorithm_may_be_chosen_by_name(void) { in_a_child(with_rings); }

static void remove_the_directory(void) {
  DIR *files = opendir(directory);
  CHECK(files != NULL);
  for (struct dirent *entry; files && (entry = readdir(files));) {
    char path[300];
    path_of(path, entry->d_name);
    unlink(path); /* fails for . and .. */
  }
  if (files) closedir(files);
  CHECK_EQ(0, rmdir(directory));
}

static const struct test_case cases[] = {
    CASE(wrong_values_are_named_with_their_variable),
    CASE(nothing_is_printed_unless_asked),
    CASE(only_chosen_subsystems_are_logged),
    CASE(a_log_file_alone_logs_nothing),
    CASE(a_log_goes_to_its_file_and_nowhere_else),
    CASE(an_unknown_name_is_warned_about_with_the_nearest_known_one),
    CASE(without_a_file_the_log_goes_to_stderr),
    CASE(a_log_whose_file_cannot_be_opened_goes_to_stderr),
    CASE(a_forked_child_is_refused_while_others_write_the_log),
    CASE(an_algorithm_may_be_chosen_by_name),
};

int main(void) {
  const char *const ours[] = {"NEXAR_ALGO", "NEXAR_DEBUG", "NEXAR_DEBUG_FILE",
                              "NEXAR_DEBUG_SUBSYS", "NEXAR_OP_TIMEOUT_MS"};
  for (size_t i = 0; i < COUNT_OF(ours); i++) unsetenv(ours[i]);
  const char *temporary = getenv("TMPDIR");
  snprintf(directory, sizeof directory, "%s/nexar-environment-%d", temporary ? temporary : P_tmpdir,
           (int)getpid());
  if (mkdir(directory, 0700) != 0) return 2;
  int result = RUN(cases);
  remove_the_directory();
  return result || check_failures;
}
