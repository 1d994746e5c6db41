// Translates client/evenshard.h into calls of ClientWorker and ClientReader, which do not know its
// types: no exception leaves it, and every error becomes a status and a message of the calling
// thread.

#include "client/evenshard.h"

#include <unistd.h>

#include <cstdlib>
#include <exception>
#include <memory>
#include <mutex>
#include <new>
#include <string>
#include <utility>
#include <vector>

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "client/c_types.h"
#include "client/client_reader.h"
#include "client/client_worker.h"
#include "client/interrupt_check.h"
#include "common/base/error_kind.h"
#include "common/base/status_macros.h"
#include "common/placement/planned_config.h"
#include "common/process/log.h"
#include "common/security/tls_files.h"

struct evenshard_worker {
  std::unique_ptr<evenshard::ClientWorker> worker;
  pid_t process;  // in which it was made
};

struct evenshard_reader {
  std::unique_ptr<evenshard::ClientReader> reader;
  pid_t process;  // in which it was made
};

namespace {

thread_local std::string message;
thread_local evenshard_error_kind kind;
thread_local std::string differing_state;

evenshard_status Report(const absl::Status& status) {
  if (!status.ok()) {
    message = std::string(status.message());
    kind = static_cast<evenshard_error_kind>(evenshard::KindOf(status));
    differing_state = evenshard::DifferingStateOf(status);
  }
  return static_cast<evenshard_status>(status.code());
}

evenshard_status Guarded(absl::FunctionRef<absl::Status()> call) {
  try {
    return Report(call());
  } catch (const std::bad_alloc&) {
    return Report(absl::ResourceExhaustedError("there is not enough memory"));
  } catch (const std::exception& error) {
    return Report(absl::InternalError(error.what()));
  }
}

// Whether this process made the worker. A thread of its parent may have held the exchange's locks
// when it forked.
bool IsOwn(const evenshard_worker* worker) { return worker->process == getpid(); }

// Runs `call` on a worker of this process.
evenshard_status On(evenshard_worker* worker,
                    absl::FunctionRef<absl::Status(evenshard::ClientWorker&)> call) {
  return Guarded([&] {
    if (IsOwn(worker)) return call(*worker->worker);
    return absl::FailedPreconditionError(
        "the worker belongs to the parent of this process; start workers after fork, not before");
  });
}

// What goes wrong is reported by statuses, so only warnings are logged, unless the environment asks
// for more.
void SetUpLogOnce() {
  static std::once_flag once;
  std::call_once(once, [] {
    const char* const level = std::getenv("EVENSHARD_LOG_LEVEL");
    evenshard::SetUpLog("evenshard", level != nullptr ? level : "warning");
  });
}

}  // namespace

int evenshard_abi(void) { return EVENSHARD_ABI; }

const char* evenshard_message(void) { return message.c_str(); }

evenshard_error_kind evenshard_last_error_kind(void) { return kind; }

const char* evenshard_differing_state(void) { return differing_state.c_str(); }

evenshard_status evenshard_topology_of(const evenshard_options* options,
                                       evenshard_topology* topology) {
  return Guarded([&]() -> absl::Status {
    ASSIGN_OR_RETURN(const evenshard::PlannedConfig config, evenshard::ReadConfig(*options));
    *topology = config.is_ring() ? EVENSHARD_RING : EVENSHARD_PARAMETER_SERVER;
    return absl::OkStatus();
  });
}

evenshard_status evenshard_create(const evenshard_options* options, evenshard_worker** worker) {
  *worker = nullptr;
  return Guarded([&]() -> absl::Status {
    SetUpLogOnce();
    ASSIGN_OR_RETURN(evenshard::PlannedConfig config, evenshard::ConfigFrom(*options));
    ASSIGN_OR_RETURN(std::unique_ptr<evenshard::ClientWorker> created,
                     evenshard::ClientWorker::Create(std::move(config), options->rank,
                                                     evenshard::OrEmpty(options->coordinator)));
    *worker = new evenshard_worker{std::move(created), getpid()};
    return absl::OkStatus();
  });
}

void evenshard_destroy(evenshard_worker* worker) {
  if (worker == nullptr) return;
  // The threads of the exchange are the parent's.
  if (!IsOwn(worker)) return;
  Guarded([&] {
    delete worker;
    return absl::OkStatus();
  });
}

int evenshard_tensor_count(const evenshard_worker* worker) {
  return static_cast<int>(worker->worker->config().model().tensors().size());
}

evenshard_tensor evenshard_tensor_at(const evenshard_worker* worker, int tensor) {
  return evenshard::TensorAt(worker->worker->config().model(), tensor);
}

int64_t evenshard_elements(const evenshard_worker* worker, int tensor) {
  return worker->worker->config().model().tensors()[tensor].size;
}

void* evenshard_parameters(evenshard_worker* worker, int tensor) {
  return worker->worker->parameters(tensor);
}

void* evenshard_gradients(evenshard_worker* worker, int tensor) {
  return worker->worker->gradients(tensor);
}

float* evenshard_assigned(evenshard_worker* worker, int tensor) {
  return worker->worker->assigned(tensor);
}

int evenshard_rank(const evenshard_worker* worker) { return worker->worker->rank(); }

int evenshard_workers(const evenshard_worker* worker) { return worker->worker->config().workers(); }

int evenshard_shards(const evenshard_worker* worker) { return worker->worker->config().shards(); }

int evenshard_pushes_early(const evenshard_worker* worker) {
  return worker->worker->schedule().pushes_early();
}

int evenshard_waits_in_forward(const evenshard_worker* worker) {
  return worker->worker->schedule().waits_in_forward();
}

int evenshard_skips_non_finite(const evenshard_worker* worker) {
  return worker->worker->config().proto().update().non_finite() == evenshard::Update::SKIP;
}

double evenshard_gradient_limit(const evenshard_worker* worker) {
  return evenshard::OverflowsFrom(worker->worker->config().proto().exchange().gradient_encoding());
}

int evenshard_waits_for_workers(const evenshard_worker* worker) {
  return worker->worker->waits_for_workers();
}

int evenshard_follows_views(const evenshard_worker* worker) {
  return worker->worker->follows_views();
}

const char* evenshard_optimizer(const evenshard_worker* worker) {
  return evenshard::OptimizerConfig::Kind_Name(worker->worker->config().proto().optimizer().kind())
      .c_str();
}

int evenshard_local_steps(const evenshard_worker* worker) {
  return worker->worker->config().proto().local().steps();
}

double evenshard_local_seconds(const evenshard_worker* worker) {
  return worker->worker->config().proto().local().seconds();
}

int evenshard_parameters_are_exact(const evenshard_worker* worker) {
  return worker->worker->parameters_are_exact();
}

double evenshard_learning_rate(const evenshard_worker* worker, int tensor) {
  return worker->worker->LearningRate(tensor);
}

evenshard_status evenshard_join(evenshard_worker* worker) {
  return On(worker, [](evenshard::ClientWorker& w) { return w.Join(); });
}

int64_t evenshard_iteration(const evenshard_worker* worker) {
  return IsOwn(worker) ? worker->worker->iteration() : 0;
}

int evenshard_joined_late(const evenshard_worker* worker) {
  return IsOwn(worker) && worker->worker->joined_late() ? 1 : 0;
}

int64_t evenshard_assignments(const evenshard_worker* worker) {
  return IsOwn(worker) ? worker->worker->assignments() : 0;
}

evenshard_phase evenshard_current_phase(const evenshard_worker* worker) {
  return IsOwn(worker) ? static_cast<evenshard_phase>(worker->worker->phase()) : EVENSHARD_IDLE;
}

int evenshard_is_pushed(const evenshard_worker* worker, int tensor) {
  return IsOwn(worker) && worker->worker->IsPushed(tensor);
}

int evenshard_has_failed(const evenshard_worker* worker) {
  return IsOwn(worker) && worker->worker->HasFailed();
}

evenshard_status evenshard_begin(evenshard_worker* worker, int contributes,
                                 const evenshard_hyperparameters* by_tensor) {
  return On(worker, [&](evenshard::ClientWorker& w) {
    return w.Begin(contributes != 0, evenshard::HyperparametersOf(w.config().model(), by_tensor));
  });
}

evenshard_status evenshard_set_weight(evenshard_worker* worker, float weight) {
  return On(worker, [&](evenshard::ClientWorker& on) { return on.SetWeight(weight); });
}

evenshard_status evenshard_begin_assignment(evenshard_worker* worker, int array,
                                            const uint64_t* steps) {
  return On(worker, [&](evenshard::ClientWorker& w) {
    const size_t tensors = steps == nullptr ? 0 : w.config().model().tensors().size();
    return w.BeginAssignment(array, {steps, steps + tensors});
  });
}

evenshard_status evenshard_push(evenshard_worker* worker, int tensor,
                                evenshard_contribution contribution) {
  return evenshard_push_several(worker, &tensor, 1, contribution);
}

evenshard_status evenshard_push_several(evenshard_worker* worker, const int* tensors, int count,
                                        evenshard_contribution contribution) {
  return On(worker, [&](evenshard::ClientWorker& w) {
    return w.Push({tensors, static_cast<size_t>(count)},
                  static_cast<evenshard::Contribution>(contribution));
  });
}

evenshard_status evenshard_wait(evenshard_worker* worker, int tensor) {
  return On(worker, [&](evenshard::ClientWorker& w) { return w.Wait(tensor); });
}

int evenshard_received(const evenshard_worker* worker, int tensor) {
  return IsOwn(worker) ? worker->worker->Received(tensor) : 0;
}

uint64_t evenshard_updates(const evenshard_worker* worker, int tensor) {
  return IsOwn(worker) ? worker->worker->Updates(tensor) : 0;
}

int evenshard_all_absent(const evenshard_worker* worker, int tensor) {
  return IsOwn(worker) && worker->worker->AllAbsent(tensor);
}

evenshard_status evenshard_mean(evenshard_worker* worker, const char* place, double* values,
                                int count) {
  return On(worker, [&](evenshard::ClientWorker& w) {
    return w.Mean(place, {values, static_cast<size_t>(count)});
  });
}

evenshard_status evenshard_keep_state(evenshard_worker* worker, const char* const* names,
                                      const char* const* texts, int count) {
  return On(worker, [&](evenshard::ClientWorker& w) {
    evenshard::StatesByName states;
    for (int i = 0; i < count; ++i) states[names[i]] = texts[i];
    return w.KeepState(std::move(states));
  });
}

evenshard_status evenshard_take_state(evenshard_worker* worker) {
  return On(worker, [](evenshard::ClientWorker& w) { return w.TakeState(); });
}

int evenshard_taken_state(const evenshard_worker* worker, int i, const char** name,
                          const char** text) {
  if (!IsOwn(worker)) return 0;
  const evenshard::StatesByName& states = worker->worker->taken_states();
  if (i < 0 || i >= static_cast<int>(states.size())) return 0;
  const auto& [found, value] = *std::next(states.begin(), i);
  *name = found.c_str();
  *text = value.c_str();
  return 1;
}

void evenshard_set_state_giver(evenshard_worker* worker, evenshard_state_callback give,
                               void* context) {
  if (!IsOwn(worker)) return;
  if (give == nullptr) return worker->worker->SetStateGiver(nullptr);
  worker->worker->SetStateGiver([give, context]() -> absl::StatusOr<evenshard::WorkerState> {
    evenshard_state state = {};
    give(&state, context);
    ASSIGN_OR_RETURN(evenshard::WorkerState::Memory memory, evenshard::MemoryOf(state));
    if (state.text == nullptr) return absl::UnavailableError("the program gives none now");
    return evenshard::WorkerState{.text = std::string(state.text, state.text_bytes),
                                  .memory = std::move(memory)};
  });
}

evenshard_status evenshard_receive_state(evenshard_worker* worker, evenshard_state_callback place,
                                         void* context) {
  return On(worker, [&](evenshard::ClientWorker& w) {
    return w.ReceiveState([&](const std::string& text) {
      evenshard_state state = {};
      state.text = text.data();
      state.text_bytes = static_cast<int64_t>(text.size());
      place(&state, context);
      return evenshard::MemoryOf(state);
    });
  });
}

evenshard_status evenshard_wait_all(evenshard_worker* worker) {
  return On(worker, [](evenshard::ClientWorker& w) { return w.WaitAll(); });
}

evenshard_status evenshard_push_pull(evenshard_worker* worker,
                                     const evenshard_hyperparameters* by_tensor) {
  return On(worker, [&](evenshard::ClientWorker& w) {
    return w.PushPull(evenshard::HyperparametersOf(w.config().model(), by_tensor));
  });
}

evenshard_status evenshard_pull(evenshard_worker* worker) {
  return On(worker, [](evenshard::ClientWorker& w) { return w.Pull(); });
}

evenshard_status evenshard_pull_state(evenshard_worker* worker, int array, float* const* out,
                                      uint64_t* steps) {
  return On(worker, [&](evenshard::ClientWorker& w) { return w.PullState(array, out, steps); });
}

evenshard_status evenshard_resume(evenshard_worker* worker) {
  return On(worker, [](evenshard::ClientWorker& w) { return w.Resume(); });
}

evenshard_status evenshard_leave(evenshard_worker* worker, const char* error) {
  return On(worker, [&](evenshard::ClientWorker& w) { return w.Leave(error); });
}

void evenshard_interrupt(evenshard_worker* worker) { worker->worker->Interrupt(); }

void evenshard_set_interrupt_check(int (*check)(void)) { evenshard::SetInterruptCheck(check); }

evenshard_counts evenshard_statistics(const evenshard_worker* worker) {
  if (!IsOwn(worker)) return {};
  const evenshard::ClientWorker& counted = *worker->worker;
  return {.iterations = counted.iterations(),
          .pushes = counted.traffic().pushes,
          .bytes_out = counted.traffic().bytes_out,
          .bytes_in = counted.traffic().bytes_in,
          .wait_seconds = absl::ToDoubleSeconds(counted.waited())};
}

evenshard_status evenshard_reader_create(const evenshard_reader_options* options,
                                         evenshard_reader** reader) {
  *reader = nullptr;
  return Guarded([&]() -> absl::Status {
    SetUpLogOnce();
    ASSIGN_OR_RETURN(const evenshard::PlannedConfig config, evenshard::ReadConfig(*options));
    RETURN_IF_ERROR(config.CheckHasShards());
    RETURN_IF_ERROR(evenshard::CheckSecurity(config.proto()));
    ASSIGN_OR_RETURN(std::unique_ptr<evenshard::ClientReader> created,
                     evenshard::ClientReader::Create(config));
    *reader = new evenshard_reader{std::move(created), getpid()};
    return absl::OkStatus();
  });
}

void evenshard_reader_destroy(evenshard_reader* reader) {
  if (reader == nullptr) return;
  if (reader->process != getpid()) return;
  Guarded([&] {
    delete reader;
    return absl::OkStatus();
  });
}

int evenshard_reader_tensor_count(const evenshard_reader* reader) {
  return static_cast<int>(reader->reader->config().model().tensors().size());
}

evenshard_tensor evenshard_reader_tensor_at(const evenshard_reader* reader, int tensor) {
  return evenshard::TensorAt(reader->reader->config().model(), tensor);
}

evenshard_status evenshard_reader_pull(evenshard_reader* reader, int64_t newer_than,
                                       double timeout_seconds, float* const* out,
                                       int64_t* iteration) {
  return Guarded([&]() -> absl::Status {
    if (reader->process != getpid()) {
      return absl::FailedPreconditionError(
          "the reader belongs to the parent of this process; make readers after fork, not before");
    }
    const absl::StatusOr<int64_t> pulled = reader->reader->Pull(newer_than, timeout_seconds, out);
    if (pulled.ok()) *iteration = *pulled;
    return pulled.status();
  });
}

void evenshard_reader_interrupt(evenshard_reader* reader) { reader->reader->Interrupt(); }
