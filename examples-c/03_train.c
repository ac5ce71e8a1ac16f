/*
 * Four processes train one neural network together: data-parallel SGD.
 *
 * Every process (rank) holds the same parameters. In each step it computes the gradient on its part
 * of the batch; nexarAllReduce adds up the gradients of all ranks; all ranks take the same step, so
 * their parameters stay bitwise equal.
 *
 *     cc -O2 03_train.c -lnexar -lm && nexar-run -n 4 ./a.out
 *
 * The task: recognize seven-segment digits at random positions under noise. At the end, rank 0
 * trains alone on the same batches and compares the parameters: the work was divided, not changed.
 */
#define _POSIX_C_SOURCE 199309L
#include <math.h>
#include <nexar.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <time.h>

#define CHECK(call)                                                                                \
  do {                                                                                             \
    if ((call) != nexarSuccess) {                                                                  \
      fprintf(stderr, "%s\n", nexarGetLastError(NULL));                                            \
      exit(1);                                                                                     \
    }                                                                                              \
  } while (0)

enum { SIDE = 16, PIXELS = SIDE * SIDE, HIDDEN = 1024, DIGITS = 10, BATCH = 64, STEPS = 200 };
static const float LEARNING_RATE = 0.3f;
/* The order of additions, and so their rounding, differs between one process and several. */
static const float TOLERANCE = 1e-5f;

/* One flat buffer, so that one call reduces all of it: 273 thousand floats, 1.1 MB. */
struct network {
  float w1[PIXELS][HIDDEN], b1[HIDDEN], w2[HIDDEN][DIGITS], b2[DIGITS];
};
enum { PARAMETERS = sizeof(struct network) / sizeof(float) };

static double seconds(void) {
  struct timespec now;
  clock_gettime(CLOCK_MONOTONIC, &now);
  return (double)now.tv_sec + 1e-9 * (double)now.tv_nsec;
}

/* ---- Pseudorandom numbers (splitmix64): all ranks draw the same from the same seed. */

static uint64_t draw(uint64_t *seed) {
  uint64_t x = *seed += UINT64_C(0x9e3779b97f4a7c15);
  x = (x ^ x >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
  x = (x ^ x >> 27) * UINT64_C(0x94d049bb133111eb);
  return x ^ x >> 31;
}

/* From -1 to 1. */
static float uniform(uint64_t *seed) { return (float)(draw(seed) >> 40) * 0x1p-23f - 1; }

/* ---- The data: draws image number i of an endless set. Returns its digit. */

static int draw_image(uint64_t i, float image[PIXELS]) {
  /* Segments a to g as x, y and whether vertical; then the segments of each digit. */
  static const int segments[7][3] = {{0, 0, 0}, {5, 0, 1}, {5, 5, 1}, {0, 10, 0},
                                     {0, 5, 1}, {0, 0, 1}, {0, 5, 0}};
  static const int lit[DIGITS] = {0x3f, 0x06, 0x5b, 0x4f, 0x66, 0x6d, 0x7d, 0x07, 0x7f, 0x6f};
  uint64_t seed = i * 1000003;
  int digit = (int)(draw(&seed) % DIGITS);
  int left = 4 + (int)(draw(&seed) % 3), top = 2 + (int)(draw(&seed) % 2);
  for (int p = 0; p < PIXELS; p++) image[p] = 0.5f * uniform(&seed);
  for (int s = 0; s < 7; s++)
    for (int k = 0; k < 6 && lit[digit] >> s & 1; k++) {
      int x = left + segments[s][0] + (segments[s][2] ? 0 : k);
      int y = top + segments[s][1] + (segments[s][2] ? k : 0);
      image[y * SIDE + x] += 1;
    }
  return digit;
}

/* ---- The network: image -> 1024 tanh units -> a probability for each digit. */

static void initialise(struct network *net) {
  uint64_t seed = 2024;
  memset(net, 0, sizeof *net);
  for (int p = 0; p < PIXELS; p++)
    for (int h = 0; h < HIDDEN; h++) net->w1[p][h] = uniform(&seed) / 16; /* sqrt(PIXELS) */
  for (int h = 0; h < HIDDEN; h++)
    for (int d = 0; d < DIGITS; d++) net->w2[h][d] = uniform(&seed) / 32; /* sqrt(HIDDEN) */
}

/* Returns the loss, -log of the probability given to the right digit. */
static float forward(const struct network *net, const float image[PIXELS], int digit,
                     float hidden[HIDDEN], float probability[DIGITS]) {
  memcpy(hidden, net->b1, sizeof net->b1);
  for (int p = 0; p < PIXELS; p++)
    for (int h = 0; h < HIDDEN; h++) hidden[h] += image[p] * net->w1[p][h];
  for (int h = 0; h < HIDDEN; h++) hidden[h] = tanhf(hidden[h]);

  memcpy(probability, net->b2, sizeof net->b2);
  for (int h = 0; h < HIDDEN; h++)
    for (int d = 0; d < DIGITS; d++) probability[d] += hidden[h] * net->w2[h][d];
  float largest = probability[0], sum = 0;
  for (int d = 1; d < DIGITS; d++) largest = fmaxf(largest, probability[d]);
  for (int d = 0; d < DIGITS; d++) sum += probability[d] = expf(probability[d] - largest);
  for (int d = 0; d < DIGITS; d++) probability[d] /= sum;
  return -logf(fmaxf(probability[digit], 1e-30f));
}

/* Adds this image's part of the gradient of the batch's mean loss. Returns its part of the loss. */
static float backward(const struct network *net, uint64_t image_number, struct network *gradient) {
  float image[PIXELS], hidden[HIDDEN], error[DIGITS], hidden_error[HIDDEN];
  int digit = draw_image(image_number, image);
  float loss = forward(net, image, digit, hidden, error);

  for (int d = 0; d < DIGITS; d++) error[d] = (error[d] - (d == digit)) / BATCH;
  for (int d = 0; d < DIGITS; d++) gradient->b2[d] += error[d];
  for (int h = 0; h < HIDDEN; h++) {
    float sum = 0;
    for (int d = 0; d < DIGITS; d++) {
      gradient->w2[h][d] += hidden[h] * error[d];
      sum += net->w2[h][d] * error[d];
    }
    hidden_error[h] = sum * (1 - hidden[h] * hidden[h]);
    gradient->b1[h] += hidden_error[h];
  }
  for (int p = 0; p < PIXELS; p++)
    for (int h = 0; h < HIDDEN; h++) gradient->w1[p][h] += image[p] * hidden_error[h];
  return loss / BATCH;
}

/* ---- The training. */

struct report {
  float first_loss, last_loss;
  double seconds, communication; /* in total, and in nexarAllReduce */
};

/* Trains as one of n ranks; comm may be NULL if n is 1. */
static struct report train(struct network *net, int rank, int n, nexarComm_t comm, int verbose) {
  /* The loss is sent behind the gradient, which is cheaper than another call. */
  struct { struct network gradient; float loss; } *mine = malloc(sizeof *mine);
  if (!mine) exit(1);
  struct report report = {0};
  double begin = seconds();

  initialise(net);
  for (int step = 0; step < STEPS; step++) {
    memset(mine, 0, sizeof *mine);
    for (int i = BATCH * rank / n; i < BATCH * (rank + 1) / n; i++)
      mine->loss += backward(net, (uint64_t)(step * BATCH + i), &mine->gradient);

    if (comm) {
      double before = seconds();
      CHECK(nexarAllReduce(mine, mine, PARAMETERS + 1, nexarFloat32, nexarSum, comm, NULL));
      report.communication += seconds() - before;
    }
    float *parameters = (float *)net;
    const float *gradient = (const float *)&mine->gradient;
    for (int k = 0; k < PARAMETERS; k++) parameters[k] -= LEARNING_RATE * gradient[k];

    if (step == 0) report.first_loss = mine->loss;
    report.last_loss = mine->loss;
    if (verbose && (step % 20 == 0 || step == STEPS - 1))
      printf("step %3d   loss %.4f\n", step, mine->loss);
  }
  report.seconds = seconds() - begin;
  free(mine);
  return report;
}

/* Returns the accuracy on images that were in no batch, in percent. */
static double accuracy(const struct network *net) {
  enum { IMAGES = 1000 };
  float image[PIXELS], hidden[HIDDEN], probability[DIGITS];
  int right = 0;
  for (int i = 0; i < IMAGES; i++) {
    int digit = draw_image((uint64_t)(STEPS * BATCH + i), image), best = 0;
    forward(net, image, digit, hidden, probability);
    for (int d = 1; d < DIGITS; d++) best = probability[d] > probability[best] ? d : best;
    right += best == digit;
  }
  return 100.0 * right / IMAGES;
}

/* ---- The checks. */

/* Whether the parameters of all ranks are bitwise equal: compares hashes (FNV-1a). */
static int equal_on_all_ranks(const struct network *net, int n, nexarComm_t comm) {
  uint64_t hash = UINT64_C(0xcbf29ce484222325), *hashes = malloc((size_t)n * sizeof *hashes);
  if (!hashes) exit(1);
  for (size_t i = 0; i < sizeof *net; i++)
    hash = (hash ^ ((const unsigned char *)net)[i]) * UINT64_C(0x100000001b3);
  CHECK(nexarAllGather(&hash, hashes, 1, nexarUint64, comm, NULL));
  int equal = 1;
  for (int r = 0; r < n; r++) equal &= hashes[r] == hash;
  free(hashes);
  return equal;
}

static float largest_difference(const struct network *a, const struct network *b) {
  float largest = 0;
  for (int k = 0; k < PARAMETERS; k++)
    largest = fmaxf(largest, fabsf(((const float *)a)[k] - ((const float *)b)[k]));
  return largest;
}

static int passed(int good, const char *what) {
  if (!good) fprintf(stderr, "FAILED: %s\n", what);
  return good;
}

int main(void) {
  /* Rank, size and addresses are in the environment, which nexar-run has set. */
  nexarComm_t comm;
  int rank, n;
  CHECK(nexarCommInitFromEnv(&comm));
  CHECK(nexarCommUserRank(comm, &rank));
  CHECK(nexarCommCount(comm, &n));
  setvbuf(stdout, NULL, _IOLBF, 0); /* every line appears at once */

  struct network *net = malloc(sizeof *net), *alone = malloc(sizeof *alone);
  if (!net || !alone) return 1;
  if (rank == 0) printf("%d ranks train %d parameters on batches of %d\n", n, PARAMETERS, BATCH);

  struct report report = train(net, rank, n, comm, rank == 0);
  int good = passed(equal_on_all_ranks(net, n, comm), "the ranks have different parameters");
  CHECK(nexarCommDestroy(comm));
  if (rank != 0) return !good;

  double bytes = (double)STEPS * (PARAMETERS + 1) * sizeof(float);
  printf("accuracy: %.1f%% of 1000 new digits\n", accuracy(net));
  printf("%.1f s, %.0f%% of it in nexarAllReduce (waiting for slower ranks included): %.0f MB/s\n",
         report.seconds, 100 * report.communication / report.seconds,
         bytes / report.communication / 1e6);
  if (good) printf("parameters: bitwise equal on all %d ranks\n", n);

  struct report single = train(alone, 0, 1, NULL, 0);
  float difference = largest_difference(net, alone);
  printf("one process alone: %.1f s, loss %.4f, largest difference of a parameter %.1e\n",
         single.seconds, single.last_loss, difference);
  good &= passed(difference <= TOLERANCE, "the parameters differ from those of one process");
  good &= passed(report.last_loss < report.first_loss / 4, "the loss did not fall");
  if (good) printf("passed: %d ranks learn the same as one process, within %g\n", n, TOLERANCE);
  free(net);
  free(alone);
  return !good;
}
