/*
 * A worker whose gradients are known before: they follow from its rank, the iteration and the
 * element, and not from the parameters. So it does not matter where a worker was killed: whoever
 * replaces it pushes the same, and a run that has lost no update and counted none twice ends with
 * the bits of an undisturbed one.
 *
 *   pusher --config=FILE --rank=N ITERATIONS alike|own|ledger LOG [lost|doubled]
 *
 * own: each rank has gradients of its own, multiples of 1/64, so that sums are exact. alike: all
 * ranks have the same powers of two, so that the mean of those that count does not depend on how
 * many these are. ledger: ones, whose places say whose push it is and of which iteration
 * (ledger.py). With local steps, gradients have weights of 1 or 2.
 *
 * Appends to LOG what the rank has begun to push and been answered (ledger.py). lost, doubled: in
 * the middle of the training, rank 0 pushes zeros, or twice its gradient, to see that it is found.
 */
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/evenshard.h"

enum { kTensors = 4, kRows = 64, kColumns = 64, kMaxOverrides = 64, kPeriod = 256 };

enum kind { kAlike, kOwn, kLedger };

/* What is to be pushed. */
struct training {
  enum kind kind;
  int64_t iterations;
  FILE* log;
  float planted; /* the factor on rank 0's gradient of the middle iteration */
};

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, evenshard_message());
  return 1;
}

/* splitmix64 */
static uint64_t mix(uint64_t x) {
  x += 0x9e3779b97f4a7c15;
  x = (x ^ (x >> 30)) * 0xbf58476d1ce4e5b9;
  x = (x ^ (x >> 27)) * 0x94d049bb133111eb;
  return x ^ (x >> 31);
}

static float element_of(enum kind kind, uint64_t bits) {
  const float power = (float)(1 << (bits & 3)) / 64;
  return kind == kOwn ? (float)((int)(bits % 201) - 100) / 64 : (bits & 4 ? power : -power);
}

static void compute(evenshard_worker* worker, const struct training* training, int64_t iteration,
                    float factor) {
  const int rank = evenshard_rank(worker);
  const uint64_t who = training->kind == kOwn ? 1 + (uint64_t)rank : 0;
  const uint64_t seed = mix(mix((uint64_t)iteration) ^ who);
  const int64_t slots = kPeriod / evenshard_workers(worker);
  const int64_t marked = rank * slots + iteration % slots;
  for (int t = 0; t < kTensors; ++t) {
    float* const gradient = evenshard_gradients(worker, t);
    for (int64_t i = 0; i < evenshard_elements(worker, t); ++i) {
      const uint64_t bits = mix(seed ^ (uint64_t)(t * kRows * kColumns + i));
      const float element = training->kind == kLedger ? (float)(i % kPeriod == marked)
                                                      : element_of(training->kind, bits);
      gradient[i] = factor * element;
    }
  }
}

/* At once, so that it is there if the process is killed. */
static void tell(const struct training* training, const char* what, int64_t iteration) {
  fprintf(training->log, "%s %lld\n", what, (long long)iteration);
  fflush(training->log);
}

static evenshard_status train(evenshard_worker* worker, const struct training* training,
                              const char* began) {
  const int weighs = evenshard_local_steps(worker) > 0;
  tell(training, began, evenshard_iteration(worker));
  for (int64_t i = evenshard_iteration(worker); i < training->iterations; ++i) {
    const int rank = evenshard_rank(worker);
    const float weight = weighs ? (float)(1 + (mix((uint64_t)(i ^ rank)) & 1)) : 1;
    const int is_planted = rank == 0 && i == training->iterations / 2;
    compute(worker, training, i, is_planted ? training->planted * weight : weight);
    tell(training, "push", i);
    evenshard_status status = EVENSHARD_OK;
    if (weighs) status = evenshard_set_weight(worker, weight);
    if (status == EVENSHARD_OK) status = evenshard_begin(worker, 1, NULL);
    /* One by one, so that a worker is often killed between two. */
    for (int t = kTensors; status == EVENSHARD_OK && t-- > 0;) {
      status = evenshard_push(worker, t, EVENSHARD_GRADIENT);
    }
    if (status == EVENSHARD_OK) status = evenshard_wait_all(worker);
    if (status != EVENSHARD_OK) return status;
    tell(training, "done", i);
  }
  return evenshard_leave(worker, NULL);
}

static const char* value_of(const char* argument, const char* flag) {
  const size_t length = strlen(flag);
  return strncmp(argument, flag, length) == 0 ? argument + length : NULL;
}

int main(int argc, char** argv) {
  const int is_whole = argc == 6 || argc == 7;
  const char* const config = is_whole ? value_of(argv[1], "--config=") : NULL;
  const char* const rank = is_whole ? value_of(argv[2], "--rank=") : NULL;
  if (config == NULL || rank == NULL) {
    fprintf(stderr,
            "usage: %s --config=FILE --rank=N ITERATIONS alike|own|ledger LOG [lost|doubled]\n",
            argv[0]);
    return 2;
  }
  const char* const kind = argv[4];
  const char* const plant = argc == 7 ? argv[6] : "";
  const struct training training = {.kind = strcmp(kind, "own") == 0      ? kOwn
                                            : strcmp(kind, "ledger") == 0 ? kLedger
                                                                          : kAlike,
                                    .iterations = atoll(argv[3]),
                                    .log = fopen(argv[5], "a"),
                                    .planted = strcmp(plant, "lost") == 0      ? 0
                                               : strcmp(plant, "doubled") == 0 ? 2
                                                                               : 1};
  if (training.log == NULL) {
    perror(argv[5]);
    return 2;
  }
  const int64_t shape[] = {kRows, kColumns};
  evenshard_tensor tensors[kTensors];
  char names[kTensors][16];
  for (int t = 0; t < kTensors; ++t) {
    snprintf(names[t], sizeof(names[t]), "fc%d.weight", t);
    tensors[t] = (evenshard_tensor){
        .name = names[t], .shape = shape, .dimensions = 2, .role = EVENSHARD_PARAMETER};
  }
  const char* overrides[kMaxOverrides];
  int count = 0;
  char* const lines = getenv("EVENSHARD_OVERRIDES");
  for (char* line = lines == NULL ? NULL : strtok(lines, "\n");
       line != NULL && count < kMaxOverrides; line = strtok(NULL, "\n")) {
    overrides[count++] = line;
  }
  const evenshard_options options = {.config_path = config,
                                     .overrides = overrides,
                                     .override_count = count,
                                     .rank = atoi(rank),
                                     .coordinator = getenv("EVENSHARD_COORDINATOR"),
                                     .tensors = tensors,
                                     .tensor_count = kTensors};
  evenshard_worker* worker = NULL;
  if (evenshard_create(&options, &worker) != EVENSHARD_OK) return fail("create");
  for (int t = 0; t < kTensors; ++t) {
    for (int i = 0; i < kRows * kColumns; ++i)
      ((float*)evenshard_parameters(worker, t))[i] = (float)(i % 7);
  }
  evenshard_status status = evenshard_join(worker);
  if (status == EVENSHARD_OK) status = train(worker, &training, "start");
  /* The run has gone back to a checkpoint. */
  while (status == EVENSHARD_ABORTED) {
    status = evenshard_resume(worker);
    if (status == EVENSHARD_OK) status = train(worker, &training, "back");
  }
  const int code = status == EVENSHARD_OK ? 0 : fail("training");
  evenshard_destroy(worker);
  fclose(training.log);
  return code;
}
