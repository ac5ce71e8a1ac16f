/*
 * The watchdog of progress.h: it ends a program that hangs and prints where, but not a program that
 * is slow or was stopped. Each case watches a child with a patience of a few seconds, so the test
 * has to sleep.
 *
 * With nexar-run the program is a rank of a job that hangs: see hanging_rank.sh.
 */
#define _GNU_SOURCE
#include "cuda/processes.h"
#include "support/ranks.h"

enum { SHORT_PATIENCE_S = 3 };

static void nap(void) { nanosleep(&(struct timespec){.tv_nsec = 10000000}, NULL); }

/* Shortens the patience of children that start from now on; not of this program. */
static void shorten_patience(void) {
  char patience[12];
  snprintf(patience, sizeof patience, "%d", SHORT_PATIENCE_S);
  CHECK_EQ(0, setenv("CHECK_PATIENCE_S", patience, 1));
}

static void is_ended(void (*function)(void), const char *where) {
  char text[100];
  snprintf(text, sizeof text, "no progress for %d s in %s\n", SHORT_PATIENCE_S, where);
  shorten_patience();
  struct ended ended = run_child("", function);
  CHECK(WIFEXITED(ended.status) && WEXITSTATUS(ended.status) == WITHOUT_PROGRESS);
  CHECK_TEXT(ended.stderr_text, text);
}

static void hang(void) {
  progress_at = "a call that does not return";
  flockfile(stderr);
  for (;;) pause();
}
static void a_program_that_hangs_is_ended_and_prints_where(void) {
  is_ended(hang, "a call that does not return");
}

static void check_in_vain(void) {
  progress_at = "a loop that waits in vain";
  for (;;) {
    CHECK(true);
    nap();
  }
}
static void a_check_is_no_progress(void) { is_ended(check_in_vain, "a loop that waits in vain"); }

static void go_on_slowly(void) {
  for (double until = seconds_now() + 2 * SHORT_PATIENCE_S; seconds_now() < until; nap())
    progress();
}
static void a_program_that_is_slow_goes_on(void) {
  shorten_patience();
  in_a_process("", go_on_slowly);
}

static void wait_for_a_slow_child(void) { in_a_process("", go_on_slowly); }
static void the_progress_of_a_child_counts_for_its_parent(void) {
  shorten_patience();
  in_a_process("", wait_for_a_slow_child);
}

static void time_in_which_a_program_does_not_run_does_not_count(void) {
  shorten_patience();
  pid_t child = fork();
  if (child == 0) {
    begin_watch();
    raise(SIGSTOP);
    _exit(0);
  }
  int status = -1;
  CHECK(waitpid(child, &status, WUNTRACED) == child && WIFSTOPPED(status));
  for (double until = seconds_now() + 2 * SHORT_PATIENCE_S; seconds_now() < until;) nap();
  CHECK_EQ(0, kill(child, SIGCONT));
  CHECK(waitpid(child, &status, 0) == child);
  CHECK_EQ(0, status);
}

static const struct test_case cases[] = {
    CASE(a_program_that_hangs_is_ended_and_prints_where),
    CASE(a_check_is_no_progress),
    CASE(a_program_that_is_slow_goes_on),
    CASE(the_progress_of_a_child_counts_for_its_parent),
    CASE(time_in_which_a_program_does_not_run_does_not_count),
};

/* Cases of a job's ranks. */

static void hang_as_rank_1(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)arg;
  while (rank == 1) pause();
  CHECK_CODE(nexarSuccess, nexarBarrier(comm, NULL));
}
static void one_rank_hangs(void) { run_ranks(size_of_job(3), hang_as_rank_1, NULL); }

static void hang_at_exit(void) {
  for (;;) pause();
}
static void hang_later_as_rank_1(int rank, int n, nexarComm_t comm, void *arg) {
  (void)n, (void)comm, (void)arg;
  if (rank == 1) atexit(hang_at_exit);
}
static void one_rank_hangs_at_its_end(void) {
  run_ranks(size_of_job(3), hang_later_as_rank_1, NULL);
}

static const struct test_case cases_of_ranks[] = {
    CASE(one_rank_hangs),
    CASE(one_rank_hangs_at_its_end),
};

int main(void) {
  if (getenv("NEXAR_RANK")) return RUN(cases_of_ranks);
  return RUN(cases);
}
