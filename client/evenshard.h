/*
 * The C interface to a worker's exchange with the shards, and to reading a run's parameters, for
 * programs in other languages than C++.
 * docs/protocol.md describes what happens beneath; client/example.c is a whole program.
 *
 *   evenshard_worker* worker;
 *   const int64_t shape[] = {10, 784};
 *   const evenshard_tensor tensors[] = {{"fc.weight", shape, 2, EVENSHARD_PARAMETER, NULL}};
 *   const evenshard_options options = {
 *       .config_path = "cluster.textproto", .rank = 0, .tensors = tensors, .tensor_count = 1};
 *   if (evenshard_create(&options, &worker) != EVENSHARD_OK) return fail(evenshard_message());
 *   initialize(evenshard_parameters(worker, 0));
 *   evenshard_status status = evenshard_join(worker);
 *   for (int64_t i = evenshard_iteration(worker); status == EVENSHARD_OK && i < 100; ++i) {
 *     compute_gradients(evenshard_parameters(worker, 0), evenshard_gradients(worker, 0));
 *     status = evenshard_push_pull(worker, NULL);
 *   }
 *   if (status == EVENSHARD_OK) status = evenshard_leave(worker, NULL);
 *   evenshard_destroy(worker);
 *
 * Threads: a worker is used by one thread at a time. evenshard_interrupt and the functions without
 * a worker may be called from any thread at any time before evenshard_destroy. After fork, a child
 * must not use a worker of its parent: its calls return EVENSHARD_FAILED_PRECONDITION, and
 * evenshard_destroy does nothing.
 *
 * Errors: every function that can fail returns a status. Unless that is EVENSHARD_OK,
 * evenshard_message says what was wrong, where, and what is allowed. A failed exchange stays
 * failed: the worker can only leave and be destroyed, but for evenshard_resume.
 *
 * In a ring (topology RING) workers exchange among themselves, and what is said of shards holds for
 * them. A program brings the model. Nobody has all of the optimizer's state, so that it is neither
 * pulled nor assigned (UNIMPLEMENTED), and nobody joins later or goes on in place of another. A
 * mistake in evenshard_mean or evenshard_keep_state ends the run.
 */
#ifndef EVENSHARD_CLIENT_EVENSHARD_H_
#define EVENSHARD_CLIENT_EVENSHARD_H_

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define EVENSHARD_API __attribute__((visibility("default")))

/* Incremented on every ABI-incompatible change. */
#define EVENSHARD_ABI 8
/* The ABI of the library. A program compares it with EVENSHARD_ABI before any other call. */
EVENSHARD_API int evenshard_abi(void);

/* gRPC's codes. */
typedef enum evenshard_status {
  EVENSHARD_OK = 0,
  EVENSHARD_CANCELLED = 1, /* interrupted */
  EVENSHARD_UNKNOWN = 2,
  EVENSHARD_INVALID_ARGUMENT = 3,
  EVENSHARD_DEADLINE_EXCEEDED = 4,
  EVENSHARD_NOT_FOUND = 5,
  EVENSHARD_ALREADY_EXISTS = 6,
  EVENSHARD_PERMISSION_DENIED = 7,
  EVENSHARD_RESOURCE_EXHAUSTED = 8,
  EVENSHARD_FAILED_PRECONDITION = 9,
  EVENSHARD_ABORTED = 10,
  EVENSHARD_OUT_OF_RANGE = 11,
  EVENSHARD_UNIMPLEMENTED = 12,
  EVENSHARD_INTERNAL = 13,
  EVENSHARD_UNAVAILABLE = 14,
  EVENSHARD_DATA_LOSS = 15,
  EVENSHARD_UNAUTHENTICATED = 16
} evenshard_status;

/* The message of the last call of this thread that failed. Valid until its next call. */
EVENSHARD_API const char* evenshard_message(void);

/* What an error means for the run, which its status and its message do not say. */
typedef enum evenshard_error_kind {
  EVENSHARD_ERROR_OTHER = 0,
  EVENSHARD_ERROR_RUN_FAILED = 1, /* the run is over for everybody; trying again cannot help */
  EVENSHARD_ERROR_WENT_BACK = 2   /* the run has gone back to a checkpoint; see evenshard_resume */
} evenshard_error_kind;
/* The kind of the error that evenshard_message describes. */
EVENSHARD_API evenshard_error_kind evenshard_last_error_kind(void);
/* The name of what was given to evenshard_keep_state and is not the same in all workers, if that is
 * the error that evenshard_message describes, of at most 256 characters; otherwise "". Valid as
 * long. */
EVENSHARD_API const char* evenshard_differing_state(void);

typedef enum evenshard_role {
  EVENSHARD_PARAMETER = 0, /* a gradient is pushed, which goes through the optimizer */
  /* The running value minus the new one is pushed, and subtracted as it is, whatever the optimizer:
   * the mean over the workers under SYNC, each worker's part of that under ASYNC and SSP. */
  EVENSHARD_RUNNING_STATISTIC = 1,
  /* Not trained. Worker 0 pushes the value itself, whatever its bits, and pushes it as absent while
   * it has not changed; others always do that. An update replaces the value by worker 0's. */
  EVENSHARD_BUFFER = 2
} evenshard_role;

/* What a worker has in memory. The shards have masters, and the optimizer's state, in float32. */
typedef enum evenshard_type {
  EVENSHARD_FLOAT32 = 0,
  EVENSHARD_FLOAT16 = 1, /* IEEE 754 binary16 */
  EVENSHARD_BFLOAT16 = 2 /* the upper half of a float32 */
} evenshard_type;

/* A tensor, row-major. */
typedef struct evenshard_tensor {
  const char* name;     /* unique: "fc6.weight" */
  const int64_t* shape; /* a scalar has none */
  int dimensions;
  evenshard_role role;
  /* The layer that owns it, for layer-based placement; tensors of a layer are neighbours. NULL: the
   * name up to its last '.' or '/'. */
  const char* layer;
  /* Of a parameter; all others are float32. Parameters of 16 bits come as the shard's masters
   * rounded once, and travel with 16 bits whatever the config's encodings. A gradient is bfloat16
   * with a bfloat16 parameter, and float32 with any other. */
  evenshard_type type;
} evenshard_tensor;

typedef struct evenshard_worker evenshard_worker;

typedef struct evenshard_options {
  /* A ClusterConfig in protobuf text format: a file, or the text itself. */
  const char* config_path;
  const char* config_text;
  /* "FIELD=VALUE", as the programs' flag --set. */
  const char* const* overrides;
  int override_count;
  int rank;                /* from 0 */
  const char* coordinator; /* its address in a run with views; NULL or "" in others */
  /* The model, in the order in which a forward pass needs its tensors, if the config has
   * model.from_workers; otherwise none. */
  const evenshard_tensor* tensors;
  int tensor_count;
  /* With model.from_workers and without an `optimizer` in the config, the worker may bring that
   * too: an OptimizerConfig in protobuf text format. NULL: the config's. */
  const char* optimizer;
  /* Likewise update.clip_global_norm and update.clip_value: the mean gradient is scaled to at most
   * this L2 norm over all parameters, and then its elements are clipped. 0: the config's. */
  float clip_global_norm;
  float clip_value;
  /* Likewise `local`, LocalSteps in protobuf text format: the program trains by itself between two
   * exchanges. NULL: the config's. */
  const char* local;
} evenshard_options;

/* Whether workers exchange with shards, or among themselves in a ring (`topology`). */
typedef enum evenshard_topology {
  EVENSHARD_PARAMETER_SERVER = 0,
  EVENSHARD_RING = 1
} evenshard_topology;
/* Sets the topology of a config; only that and its overrides count of the options. In a ring it is
 * best to give all parameters before the running statistics, and buffers last: tensors of different
 * roles do not travel together. Errors: those that evenshard_create has for a config. */
EVENSHARD_API evenshard_status evenshard_topology_of(const evenshard_options* options,
                                                     evenshard_topology* topology);

/* Checks config and model and allocates the memory of parameters and gradients; connects to nobody.
 * Errors: INVALID_ARGUMENT, one line for each problem; RESOURCE_EXHAUSTED; those of the file. */
EVENSHARD_API evenshard_status evenshard_create(const evenshard_options* options,
                                                evenshard_worker** worker);

/* Frees the worker. One that has joined and not left leaves with an error. NULL: does nothing. */
EVENSHARD_API void evenshard_destroy(evenshard_worker* worker);

/* The model's tensors, in model order. */
EVENSHARD_API int evenshard_tensor_count(const evenshard_worker* worker);
/* Its pointers live as long as the worker. REQUIRES: 0 <= tensor < count, here and below. */
EVENSHARD_API evenshard_tensor evenshard_tensor_at(const evenshard_worker* worker, int tensor);
EVENSHARD_API int64_t evenshard_elements(const evenshard_worker* worker, int tensor);
/* Where the tensor's parameters are received and where its gradient is pushed from, of the types
 * that evenshard_tensor says and each at a multiple of 64 bytes. All tensors of one kind lie in one
 * block, in model order. Both are zero after evenshard_create. */
EVENSHARD_API void* evenshard_parameters(evenshard_worker* worker, int tensor);
EVENSHARD_API void* evenshard_gradients(evenshard_worker* worker, int tensor);
/* Where what is assigned to the tensor is pushed from, as float32 whatever its type
 * (evenshard_begin_assignment). It is in the memory of all gradients, of one and the same tensor if
 * all are float32. */
EVENSHARD_API float* evenshard_assigned(evenshard_worker* worker, int tensor);

/* What the config says. */
EVENSHARD_API int evenshard_rank(const evenshard_worker* worker);
EVENSHARD_API int evenshard_workers(const evenshard_worker* worker);
EVENSHARD_API int evenshard_shards(const evenshard_worker* worker);
/* What exchange.schedule asks of a program. pushes_early: push each gradient as soon as it is
 * computed; otherwise push all at the end of the backward pass, because nothing leaves before.
 * waits_in_forward: wait for each tensor where the forward pass needs it; otherwise wait for all at
 * the end of the iteration. */
EVENSHARD_API int evenshard_pushes_early(const evenshard_worker* worker);
EVENSHARD_API int evenshard_waits_in_forward(const evenshard_worker* worker);
/* Whether a worker leaves out a gradient that is not finite, or not below evenshard_gradient_limit
 * (update.non_finite: SKIP). The program looks. */
EVENSHARD_API int evenshard_skips_non_finite(const evenshard_worker* worker);
/* The magnitude from which on exchange.gradient_encoding makes an infinity, or a NaN, of a value;
 * infinity with FLOAT32. A gradient of a type with 16 bits has its own limit. */
EVENSHARD_API double evenshard_gradient_limit(const evenshard_worker* worker);
/* Whether an iteration waits for all workers (SYNC). */
EVENSHARD_API int evenshard_waits_for_workers(const evenshard_worker* worker);
/* Whether the run has a coordinator. With one, a worker that is started again continues the run. */
EVENSHARD_API int evenshard_follows_views(const evenshard_worker* worker);
/* The kind of the optimizer, as in OptimizerConfig: "ADAM". Valid as long as the worker. */
EVENSHARD_API const char* evenshard_optimizer(const evenshard_worker* worker);
/* local.steps and local.seconds; 0 steps: an exchange after each batch. With local steps a program
 * pushes, in an iteration, what it has received of each tensor minus what it has come to. */
EVENSHARD_API int evenshard_local_steps(const evenshard_worker* worker);
EVENSHARD_API double evenshard_local_seconds(const evenshard_worker* worker);
/* Whether parameters are received as the shards have them, and not rounded to 16 bits. */
EVENSHARD_API int evenshard_parameters_are_exact(const evenshard_worker* worker);
/* The learning rate of a tensor by the config, without the schedule's factor. */
EVENSHARD_API double evenshard_learning_rate(const evenshard_worker* worker, int tensor);

/* Waits for the shards, takes the rank, and receives the parameters. At the start of a run with
 * model.from_workers those are the ones that rank 0 has in its memory when it calls this. Errors:
 * DEADLINE_EXCEEDED, which names the shards that were not up in limits.startup_seconds;
 * FAILED_PRECONDITION with the shard's reason: another model or config, a rank that is taken. If
 * the run goes back meanwhile, it joins again. */
EVENSHARD_API evenshard_status evenshard_join(evenshard_worker* worker);

/* How many iterations of training this worker has completed; above 0 after evenshard_join if the
 * worker, or the run, was started again. The next push-pull has this number. Initial parameters are
 * no iteration, and assignments are none. */
EVENSHARD_API int64_t evenshard_iteration(const evenshard_worker* worker);
/* Whether the run had begun when this worker joined, although it may have completed no iteration.
 */
EVENSHARD_API int evenshard_joined_late(const evenshard_worker* worker);
/* How many assignments have followed that iteration, or the initial parameters. Above 0 after
 * evenshard_join if the worker was started again after them: then it must not repeat them. */
EVENSHARD_API int64_t evenshard_assignments(const evenshard_worker* worker);

/* Where the worker is in its iteration. */
typedef enum evenshard_phase {
  EVENSHARD_IDLE = 0,    /* none has begun, or all tensors of the last one have been waited for */
  EVENSHARD_PUSHING = 1, /* not every tensor has been pushed */
  EVENSHARD_PUSHED = 2   /* every tensor has been pushed, and not all have been waited for */
} evenshard_phase;
EVENSHARD_API evenshard_phase evenshard_current_phase(const evenshard_worker* worker);
/* Whether a tensor has been pushed in the iteration that has begun. */
EVENSHARD_API int evenshard_is_pushed(const evenshard_worker* worker, int tensor);
/* Whether the exchange has failed, so that the worker can only leave and be destroyed, or resume.
 * An error does not mean that: a call out of order, or a pull that failed, changes nothing. */
EVENSHARD_API int evenshard_has_failed(const evenshard_worker* worker);

/* What counts for a tensor in one iteration in place of the config's: of the learning rate in place
 * of its schedule too. NaN: the config's. What the optimizer's rule does not have must be NaN. */
typedef struct evenshard_hyperparameters {
  float learning_rate;
  float momentum; /* beta1 of a rule that has one */
  float beta2;
  float weight_decay;
  float epsilon;
} evenshard_hyperparameters;

/* One iteration, step by step: begin, push each tensor once, wait for each tensor or for all.
 * evenshard_begin and the pushes do not block. After its push a tensor's parameters may change
 * until they have been waited for, and its gradient must stay as it is until all tensors have been
 * waited for.
 *
 * `by_tensor` has one for each tensor; NULL keeps the config's. Those of tensors that are no
 * parameters are left out of account. Under SYNC all workers must give the same ones. If
 * `contributes` is 0, this worker takes part in the iteration without counting in the mean,
 * whatever it pushes. If no worker pushes a gradient of a tensor, it is not updated. Errors: those
 * of the exchange; WENT_BACK if the run has gone back to a checkpoint. */
EVENSHARD_API evenshard_status evenshard_begin(evenshard_worker* worker, int contributes,
                                               const evenshard_hyperparameters* by_tensor);
/* How much what this worker pushes counts in the mean, from the next iteration on: above 0, and 1
 * at first. The program multiplies by it what it pushes, except of buffers. */
EVENSHARD_API evenshard_status evenshard_set_weight(evenshard_worker* worker, float weight);
typedef enum evenshard_contribution {
  EVENSHARD_ZEROS = 0,    /* the batch did not use the tensor: counts as a gradient of zeros */
  EVENSHARD_GRADIENT = 1, /* that in the worker's memory */
  EVENSHARD_NOTHING = 2   /* the worker does not count in the mean of this tensor */
} evenshard_contribution;
/* Begins an exchange that is no iteration of training, in place of evenshard_begin: what rank 0
 * pushes from evenshard_assigned replaces an array of the state, 0 for the parameters, and
 * from 1 on the optimizer's: the velocity (MOMENTUM, NESTEROV); the first and the second moment
 * (ADAM, ADAMW), and third the largest second moment (ADAM_AMSGRAD, ADAMW_AMSGRAD); the sum of
 * squares (ADAGRAD); the mean of squares (RMSPROP), and second the velocity (RMSPROP_MOMENTUM); the
 * mean of gradients (LION). A tensor of which rank 0 pushes EVENSHARD_ZEROS stays as it is; the
 * other ranks push all tensors so. `steps`, with an array from 1 on, says by tensor how many
 * updates lie behind the optimizer's state; NULL for 0. All workers must take part, or the run
 * fails. FAILED_PRECONDITION under ASYNC. */
EVENSHARD_API evenshard_status evenshard_begin_assignment(evenshard_worker* worker, int array,
                                                          const uint64_t* steps);
EVENSHARD_API evenshard_status evenshard_push(evenshard_worker* worker, int tensor,
                                              evenshard_contribution contribution);
/* Pushes several tensors, in this order. After an error none of them has been pushed. */
EVENSHARD_API evenshard_status evenshard_push_several(evenshard_worker* worker, const int* tensors,
                                                      int count,
                                                      evenshard_contribution contribution);
EVENSHARD_API evenshard_status evenshard_wait(evenshard_worker* worker, int tensor);
/* How many tensors from this one on, in model order, have been received, up to the first that has
 * not. Does not block. */
EVENSHARD_API int evenshard_received(const evenshard_worker* worker, int tensor);
/* How many updates the parameters have behind them that were received last, in all chunks of the
 * tensor together. Equal numbers, without a join or evenshard_resume between: equal parameters. */
EVENSHARD_API uint64_t evenshard_updates(const evenshard_worker* worker, int tensor);
/* Whether all workers pushed EVENSHARD_ZEROS for the tensor, under SYNC, in the iteration for which
 * it was received last. */
EVENSHARD_API int evenshard_all_absent(const evenshard_worker* worker, int tensor);
EVENSHARD_API evenshard_status evenshard_wait_all(evenshard_worker* worker);

/* Replaces `count` values, at most 4096, by their mean over all workers, added in the order of
 * ranks and in double; with 0 a barrier. Under SYNC only. All workers call it between the same two
 * iterations, in the same order, and with the same `place`, which says where in the program that
 * is: "train.py:40". Waits for all of them, without a limit as long as the run goes on. Errors:
 * FAILED_PRECONDITION if another worker is at another place, or has finished. */
EVENSHARD_API evenshard_status evenshard_mean(evenshard_worker* worker, const char* place,
                                              double* values, int count);

/* What counts beside the parameters and has to be as it was when a worker goes on in place of
 * another, after evenshard_resume, or from a checkpoint: schedules, positions in the data. It is
 * given as `count` texts in UTF-8 by name, of at most 256 KiB in all, before each iteration or
 * assignment begins, and takes as long as a message there and back. All workers give the same ones.
 * Under SYNC only. Errors: FAILED_PRECONDITION if another worker gives others, and after
 * evenshard_begin. */
EVENSHARD_API evenshard_status evenshard_keep_state(evenshard_worker* worker,
                                                    const char* const* names,
                                                    const char* const* texts, int count);

/* Takes what was given before the iteration, or the assignment, that comes next for this worker,
 * from the run's other workers or its checkpoint. Waits until it has been given. Errors:
 * FAILED_PRECONDITION if nobody can give it and there is no coordinator, with which the run goes
 * back (WENT_BACK). */
EVENSHARD_API evenshard_status evenshard_take_state(evenshard_worker* worker);
/* Sets the name and the text of the i-th state that was taken, in the order of names, and returns
 * 1; 0 if there are not so many. They are valid until the next evenshard_take_state. */
EVENSHARD_API int evenshard_taken_state(const evenshard_worker* worker, int i, const char** name,
                                        const char** text);

/* With optimizer.kind MEAN the parameters and the optimizer's state are the programs' own, and with
 * `local` the state of each worker's optimizer. A worker that is started again in a run under way
 * gets them from another one. To the library they are bytes, in parts, and a text that says what
 * the parts are. */
typedef struct evenshard_state {
  const char* text;
  int64_t text_bytes;
  void* const* parts;
  const int64_t* bytes; /* of each part */
  int count;
  const char* refusal; /* why it cannot be sent at this time, or does not fit; otherwise NULL */
} evenshard_state;
typedef void (*evenshard_state_callback)(evenshard_state* state, void* context);
/* Has `give` called when another worker needs the state, in the program's thread and while a call
 * of that waits: in an iteration, a mean, or in evenshard_leave. It sets `state` to what counts
 * before the iteration in which, or before which, the worker waits. The memory must stay as it is
 * until the waiting call returns or `give` is called again. Without a text nothing is sent this
 * time. NULL: nothing is given. */
EVENSHARD_API void evenshard_set_state_giver(evenshard_worker* worker,
                                             evenshard_state_callback give, void* context);
/* Receives the state that counts before the iteration that comes next for this worker. Waits until
 * another worker waits there too. `place` gets the text and sets the parts to where the state goes,
 * of as many bytes in all; it is called in a thread of its own, and again if the sender is lost.
 * After an error their content is undefined. Errors: FAILED_PRECONDITION if it is refused, or if
 * all workers were started again and there is no coordinator, with which the run goes back
 * (WENT_BACK); with `local` NOT_FOUND if no worker has it, and OUT_OF_RANGE if the others have
 * completed that iteration already: to take part in it without contributing, and to ask before the
 * next. */
EVENSHARD_API evenshard_status evenshard_receive_state(evenshard_worker* worker,
                                                       evenshard_state_callback place,
                                                       void* context);

/* A whole iteration: begins it, pushes all tensors, and waits for all. */
EVENSHARD_API evenshard_status evenshard_push_pull(evenshard_worker* worker,
                                                   const evenshard_hyperparameters* by_tensor);

/* Receives all parameters without a push, for evaluation under ASYNC. */
EVENSHARD_API evenshard_status evenshard_pull(evenshard_worker* worker);

/* Receives an array of the state as the shards have it, as in evenshard_begin_assignment, without a
 * push and between iterations. out[i] is where that of tensor i goes, or NULL; only parameters have
 * more than array 0. Sets steps[i], which begins as the caller has set it, to the updates behind
 * the state if that is more. Under SYNC all chunks are of the same moment. */
EVENSHARD_API evenshard_status evenshard_pull_state(evenshard_worker* worker, int array,
                                                    float* const* out, uint64_t* steps);

/* After WENT_BACK: joins again where the run goes on, and receives the parameters of its
 * checkpoint. FAILED_PRECONDITION if the run has not gone back. */
EVENSHARD_API evenshard_status evenshard_resume(evenshard_worker* worker);

/* Leaves the run. The worker has finished if `error` is NULL; otherwise it has failed, and the
 * other workers are told the reason. One that has not resumed after WENT_BACK counts as lost
 * instead when it is destroyed, or its process ends: the run goes on as after a death. */
EVENSHARD_API evenshard_status evenshard_leave(evenshard_worker* worker, const char* error);

/* Makes the call in progress, and all later ones but leave and destroy, return CANCELLED soon. */
EVENSHARD_API void evenshard_interrupt(evenshard_worker* worker);

/* Every call that blocks then calls `check` about every 100 ms, in the caller's thread, and
 * interrupts the worker if it returns another value than 0. For interpreters that handle signals
 * between the steps of a program. NULL, the default: no check. */
EVENSHARD_API void evenshard_set_interrupt_check(int (*check)(void));

/* A reader takes the parameters of a run at one iteration, for evaluation or serving. It takes no
 * part in the run and has no rank. The rules for threads, fork and errors are those of a worker.
 *
 *   evenshard_reader* reader;
 *   const evenshard_reader_options options = {.config_path = "cluster.textproto"};
 *   if (evenshard_reader_create(&options, &reader) != EVENSHARD_OK) return fail();
 *   float* const out[] = {weight};
 *   int64_t iteration = -1;
 *   while (evenshard_reader_pull(reader, iteration, -1, out, &iteration) == EVENSHARD_OK) {
 *     evaluate(weight);
 *   }
 *   evenshard_reader_destroy(reader);
 */
typedef struct evenshard_reader evenshard_reader;

typedef struct evenshard_reader_options {
  /* As in evenshard_options. */
  const char* config_path;
  const char* config_text;
  const char* const* overrides;
  int override_count;
} evenshard_reader_options;

/* Checks the config; connects to nobody. With model.from_workers the run has the model: then it
 * asks the shards and waits, at most for limits.startup_seconds, until a worker has brought it.
 * Errors: those of evenshard_create; DEADLINE_EXCEEDED if nobody knows the model; CANCELLED by the
 * interrupt check. */
EVENSHARD_API evenshard_status evenshard_reader_create(const evenshard_reader_options* options,
                                                       evenshard_reader** reader);
/* NULL: does nothing. */
EVENSHARD_API void evenshard_reader_destroy(evenshard_reader* reader);

/* As for a worker. */
EVENSHARD_API int evenshard_reader_tensor_count(const evenshard_reader* reader);
EVENSHARD_API evenshard_tensor evenshard_reader_tensor_at(const evenshard_reader* reader,
                                                          int tensor);

/* Waits for an iteration after number `newer_than` (-1: any), and receives all parameters as they
 * are after it. out[i] is where those of tensor i go, or NULL; after an error their content is
 * undefined. `iteration` is set to the number of iterations that the parameters have been trained
 * for; under ASYNC, where chunks share no iteration, to the smallest number of updates of any
 * chunk. `timeout_seconds` below 0: none.
 *
 * Errors: OUT_OF_RANGE if the run is over and has nothing newer; FAILED_PRECONDITION if the run has
 * failed, or has another model; DEADLINE_EXCEEDED after the timeout, or if a shard was not up in
 * limits.startup_seconds; UNAVAILABLE if a shard could not be reached any more for
 * limits.exchange_seconds; RESOURCE_EXHAUSTED (limits.snapshot_bytes); CANCELLED. All but CANCELLED
 * may be followed by another call. */
EVENSHARD_API evenshard_status evenshard_reader_pull(evenshard_reader* reader, int64_t newer_than,
                                                     double timeout_seconds, float* const* out,
                                                     int64_t* iteration);

/* As evenshard_interrupt. */
EVENSHARD_API void evenshard_reader_interrupt(evenshard_reader* reader);

/* Counters of this worker since it joined. */
typedef struct evenshard_counts {
  uint64_t iterations;
  uint64_t pushes;     /* chunks */
  uint64_t bytes_out;  /* of gradients, as encoded */
  uint64_t bytes_in;   /* of parameters */
  double wait_seconds; /* in evenshard_wait, _wait_all and _push_pull */
} evenshard_counts;
EVENSHARD_API evenshard_counts evenshard_statistics(const evenshard_worker* worker);

#ifdef __cplusplus
} /* extern "C" */
#endif

#endif /* EVENSHARD_CLIENT_EVENSHARD_H_ */
