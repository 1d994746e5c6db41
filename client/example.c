/*
 * A whole worker in C: fits a line through points, of which each worker has its own, and prints
 * what it has found. The config has model.from_workers. Launch says in the environment which fields
 * of the config it has changed, such as ports, and the address of the run's coordinator, if it has
 * one.
 *
 *   example CONFIG RANK ITERATIONS
 */
#include <math.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "client/evenshard.h"

enum { kSlope, kOffset, kTensors };
enum { kMaxOverrides = 64 };

static int fail(const char* what) {
  fprintf(stderr, "%s: %s\n", what, evenshard_message());
  return 1;
}

/* Cuts `lines` into its lines, and returns how many there are. */
static int cut(char* lines, const char** out) {
  int count = 0;
  for (char* line = strtok(lines, "\n"); line != NULL && count < kMaxOverrides;
       line = strtok(NULL, "\n")) {
    out[count++] = line;
  }
  return count;
}

/* Writes the gradients of the mean squared error, and returns the error. */
static double compute_gradients(evenshard_worker* worker, int rank) {
  const float slope = *(float*)evenshard_parameters(worker, kSlope);
  const float offset = *(float*)evenshard_parameters(worker, kOffset);
  enum { kPoints = 16 };
  double error = 0, slope_gradient = 0, offset_gradient = 0;
  for (int i = 0; i < kPoints; ++i) {
    const double x = (i + 0.25 * rank) / kPoints;
    const double difference = slope * x + offset - (3 * x - 1);
    error += difference * difference / kPoints;
    slope_gradient += 2 * difference * x / kPoints;
    offset_gradient += 2 * difference / kPoints;
  }
  *(float*)evenshard_gradients(worker, kSlope) = (float)slope_gradient;
  *(float*)evenshard_gradients(worker, kOffset) = (float)offset_gradient;
  return error;
}

int main(int argc, char** argv) {
  if (argc != 4) {
    fprintf(stderr, "usage: %s CONFIG RANK ITERATIONS\n", argv[0]);
    return 2;
  }
  if (evenshard_abi() != EVENSHARD_ABI) {
    fprintf(stderr, "the library has ABI %d, this program needs %d\n", evenshard_abi(),
            EVENSHARD_ABI);
    return 2;
  }
  const int rank = atoi(argv[2]);
  const int64_t iterations = atoll(argv[3]);
  const int64_t shape[] = {1};
  const evenshard_tensor tensors[kTensors] = {
      {.name = "line.slope", .shape = shape, .dimensions = 1, .role = EVENSHARD_PARAMETER},
      {.name = "line.offset", .shape = shape, .dimensions = 1, .role = EVENSHARD_PARAMETER}};
  const char* overrides[kMaxOverrides];
  char* const lines = getenv("EVENSHARD_OVERRIDES");
  const evenshard_options options = {.config_path = argv[1],
                                     .overrides = overrides,
                                     .override_count = lines == NULL ? 0 : cut(lines, overrides),
                                     .rank = rank,
                                     .coordinator = getenv("EVENSHARD_COORDINATOR"),
                                     .tensors = tensors,
                                     .tensor_count = kTensors};
  evenshard_worker* worker = NULL;
  if (evenshard_create(&options, &worker) != EVENSHARD_OK) return fail("create");

  /* Worker 0's values are those that all begin with. */
  *(float*)evenshard_parameters(worker, kSlope) = 0.5f;
  *(float*)evenshard_parameters(worker, kOffset) = 0.25f;
  evenshard_status status = evenshard_join(worker);
  double error = NAN;
  for (int64_t i = evenshard_iteration(worker); status == EVENSHARD_OK && i < iterations; ++i) {
    error = compute_gradients(worker, rank);
    status = evenshard_push_pull(worker, NULL);
  }
  if (status == EVENSHARD_OK) {
    printf("worker %d of %d: y = %.3f x + %.3f, mean squared error %.2g\n", rank,
           evenshard_workers(worker), *(float*)evenshard_parameters(worker, kSlope),
           *(float*)evenshard_parameters(worker, kOffset), error);
    status = evenshard_leave(worker, NULL);
  }
  const int code = status == EVENSHARD_OK ? 0 : fail("training");
  evenshard_destroy(worker);
  return code;
}
