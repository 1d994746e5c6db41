#ifndef EVENSHARD_TESTS_SIMULATION_WORKER_TRANSPORT_H_
#define EVENSHARD_TESTS_SIMULATION_WORKER_TRANSPORT_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "common/wire/chunk_codec.h"
#include "tests/simulation/context.h"
#include "tests/simulation/ps_process.h"
#include "worker/exchange/core/exchange_core.h"
#include "worker/exchange/core/exchange_transport.h"

namespace evenshard {

// How a worker's ExchangeCore reaches the slots over the simulated network.
class WorkerTransport final : public ExchangeTransport {
 public:
  // What is pushed, and what becomes of the answers.
  class Buffers {
   public:
    virtual ~Buffers() = default;
    // Returns the data of a push, as it is now, in the exchange's encoding.
    virtual std::string Gradient(const GradientHeader& header) = 0;
    virtual absl::Status TakeParameters(int slot, const ParameterHeader& header,
                                        const std::string& data, int primary) = 0;
  };

  WorkerTransport(Context* context, int rank, NodeRef node, uint64_t incarnation, Buffers* buffers);

  // REQUIRES: called before anything else.
  void SetCore(ExchangeCore* core) { core_ = core; }

  void Connect(const Attempt& attempt) override;
  void Disconnect(int slot) override;
  void Wake(int slot) override;

  // Calls the process where the slot was at the latest attempt, and then `done` with its answer or
  // why there was none.
  using Answer = absl::StatusOr<std::vector<PsProcess::Pulled>>;
  void Pull(int slot, std::function<void(const Answer&)> done);
  void Leave(int slot, LeaveRequest message, std::function<void(const absl::Status&)> done);

 private:
  struct Stream {
    std::shared_ptr<Connection> connection;
    // Set and used at the shard's side.
    std::shared_ptr<std::shared_ptr<PushStream>> end;
  };
  struct Slot {
    uint64_t attempt = 0;
    int process = -1;
    uint64_t view = 0;  // of the latest attempt
    std::shared_ptr<Connection> control;
    std::vector<Stream> streams;
  };

  void Try(const Attempt& attempt);
  void Joined(const Attempt& attempt, const absl::StatusOr<JoinResponse>& response);
  void OpenStreams(int slot);
  void Drain(int slot, int stream);
  void Broken(int slot, uint64_t attempt, const absl::Status& status);
  std::shared_ptr<Connection> Reach(int process) const;

  Context& context_;
  const int rank_;
  const NodeRef node_;
  const uint64_t incarnation_;
  Buffers& buffers_;
  ExchangeCore* core_ = nullptr;
  std::vector<Slot> slots_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_WORKER_TRANSPORT_H_
