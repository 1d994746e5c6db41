#ifndef EVENSHARD_TESTS_SIMULATION_PS_PROCESS_H_
#define EVENSHARD_TESTS_SIMULATION_PS_PROCESS_H_

#include <cstdint>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "common/control/view/view_link.h"
#include "server/recovery/agreement_reporter.h"
#include "server/recovery/slot_host.h"
#include "server/store/chunk_observer.h"
#include "server/store/snapshots.h"
#include "server/view_candidate.h"
#include "tests/simulation/context.h"
#include "tests/simulation/push_stream.h"
#include "tests/testing/dice.h"

namespace evenshard {

// A ps process: the real SlotHost, and in the place of gRPC what a simulated network brings.
class PsProcess final : public ReplicaTransport, public AgreementTransport, private ChunkObserver {
 public:
  // A chunk's parameters, as a Pull answers them.
  struct Pulled {
    uint32_t chunk = 0;
    uint64_t version = 0;
    uint64_t iteration = 0;  // SYNC: where the chunk is
    std::string data;        // FLOAT32
  };

  PsProcess(Context* context, int index, NodeRef node, uint64_t incarnation);
  ~PsProcess() override;

  int index() const { return index_; }
  uint64_t incarnation() const { return incarnation_; }
  NodeRef node() const { return node_; }
  // How many slots' states are in its memory, and whether one of them is a replica.
  int slots_held() const;
  bool holds_replica() const;

  // Whether the process takes its roles for its own.
  bool HoldsRoles() const;

  // What workers ask for. UNAVAILABLE if this process is not primary of the slot.
  absl::StatusOr<JoinResponse> Join(int slot, const JoinRequest& request);
  absl::Status Leave(int slot, const LeaveRequest& request);
  absl::StatusOr<std::vector<Pulled>> Pull(int slot, uint32_t rank);
  // A worker has opened a stream to push on. The connection's side 1 is here.
  std::shared_ptr<PushStream> OpenStream(int slot, uint32_t rank, uint64_t incarnation,
                                         std::shared_ptr<Connection> connection);

  std::unique_ptr<ReplicaStream> Open(int slot, int lane, uint64_t view, const ProcessId& primary,
                                      const ProcessId& copy,
                                      ReplicaStream::Receiver* receiver) override;
  void Disconnect(int /*slot*/) override {}

  void Report(const ProcessId& decider, const AgreementReport& report,
              AgreementDecider::Answer answer) override;

  // Has the copy of a slot take what the primary with this incarnation and number sends.
  absl::StatusOr<ReplicaReceipt> TakeReplica(int slot, uint64_t view, uint64_t sender, int number,
                                             const ReplicaMessage& message);

  // After each event of the process.
  void AfterEvent();

 private:
  bool ReadsGradients() const override { return true; }
  std::optional<uint64_t> Changed(int index, const StoredChunk& chunk,
                                  const ChunkChange& change) override
      ABSL_SHARED_LOCKS_REQUIRED(chunk.mutex);
  absl::StatusOr<std::shared_ptr<Shard>> PrimaryOf(int slot) const;
  void BecamePrimary(Shard& shard);
  void StandForElection();
  void OnView(const View& view);
  void Announce();
  void Tick();
  void WorkLater();
  // Begins to read a slot, as readers outside the training do, now and then.
  void OpenReader();
  void Read();

  // A reader, which takes a slot's part of a snapshot.
  struct SlotReader {
    std::shared_ptr<Shard> shard;
    int primary = 0;  // the oracle's number
    uint64_t k = 0;
    std::unique_ptr<Snapshots::Reader> reader;
  };

  Context& context_;
  const int index_;
  const NodeRef node_;
  const uint64_t incarnation_;
  const std::unique_ptr<Storage> storage_;
  View adopting_;                 // the view that is being adopted, or was last
  std::map<int, int> primaries_;  // the oracle's number of the primary, by slot
  std::map<const Shard*, std::vector<std::weak_ptr<PushStream>>> streams_;  // oldest first
  bool announce_ = true;
  bool may_work_ = false;
  bool working_ = false;
  std::unique_ptr<ViewCandidate> candidate_;  // with etcd
  const std::unique_ptr<ViewLink> link_;
  std::unique_ptr<SlotHost> host_;
  Dice dice_;  // for readers
  bool may_read_ = false;
  std::list<SlotReader> readers_;  // a reader goes before its shard
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SIMULATION_PS_PROCESS_H_
