#ifndef EVENSHARD_SERVER_RPC_PARAMETER_SERVICE_H_
#define EVENSHARD_SERVER_RPC_PARAMETER_SERVICE_H_

#include <memory>
#include <optional>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/synchronization/mutex.h"
#include "common/base/status_macros.h"
#include "common/net/raw_call.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/recovery/slot_host.h"
#include "server/rpc/attendance_log.h"
#include "server/rpc/exchange_stream.h"
#include "server/rpc/pull_stream.h"
#include "server/rpc/state_relay.h"
#include "server/shard/chunk_threads.h"
#include "server/shard/shard.h"

namespace evenshard {

// Translates the ParameterServer RPCs into calls of the Shard of the slot that they name. All
// methods are raw: Exchange, Pull and Snapshot so that chunk messages need no generated classes,
// which would copy the data, and the others for the reason given at AnswerUnary. Thread-safe.
class ParameterService final
    : public ParameterServer::WithRawCallbackMethod_Join<
          ParameterServer::WithRawCallbackMethod_Leave<
              ParameterServer::WithRawCallbackMethod_Report<
                  ParameterServer::WithRawCallbackMethod_Mean<
                      ParameterServer::WithRawCallbackMethod_KeepState<
                          ParameterServer::WithRawCallbackMethod_TakeState<
                              ParameterServer::WithRawCallbackMethod_AskWorkerState<
                                  ParameterServer::WithRawCallbackMethod_OfferWorkerState<
                                      ParameterServer::WithRawCallbackMethod_SendWorkerState<
                                          ParameterServer::WithRawCallbackMethod_ReceiveWorkerState<
                                              ParameterServer::WithRawCallbackMethod_Exchange<
                                                  ParameterServer::WithRawCallbackMethod_Pull<
                                                      ParameterServer::
                                                          WithRawCallbackMethod_Snapshot<
                                                              ParameterServer::
                                                                  Service>>>>>>>>>>>>> {
 public:
  struct Options {
    const PlannedConfig* config = nullptr;  // must outlive the service, like every pointer here
    int process = 0;                        // the slot of calls that name none
    const SlotHost* host = nullptr;
    const Clock* clock = nullptr;
  };

  explicit ParameterService(const Options& options);

  // Ends the shard's Exchange streams when it ends. Called for each shard before it takes part.
  void Serve(Shard& shard);

  // Ends every open Exchange stream with `status`. What they have brought may still be pushed.
  void EndStreams(const absl::Status& status);
  // Ends the Exchange streams that have waited for their worker's Join for too long. Called about
  // once a second.
  void EndWaitingStreams();

  // See OpenPulls::EndUnread.
  void EndUnreadPulls() {
    pulls_.EndUnread();
    readers_.EndUnread();
    snapshots_.EndUnread();
    states_.EndUnread();
  }

 private:
  UnaryReactor* Join(CallContext* context, const MessageBytes* request,
                     MessageBytes* response) override;
  UnaryReactor* Leave(CallContext* context, const MessageBytes* request,
                      MessageBytes* response) override;
  UnaryReactor* Report(CallContext* context, const MessageBytes* request,
                       MessageBytes* response) override;
  UnaryReactor* Mean(CallContext* context, const MessageBytes* request,
                     MessageBytes* response) override;
  UnaryReactor* KeepState(CallContext* context, const MessageBytes* request,
                          MessageBytes* response) override;
  UnaryReactor* TakeState(CallContext* context, const MessageBytes* request,
                          MessageBytes* response) override;
  UnaryReactor* AskWorkerState(CallContext* context, const MessageBytes* request,
                               MessageBytes* response) override;
  UnaryReactor* OfferWorkerState(CallContext* context, const MessageBytes* request,
                                 MessageBytes* response) override;
  ReadReactor* SendWorkerState(CallContext* context, MessageBytes* response) override;
  WriteReactor* ReceiveWorkerState(CallContext* context, const MessageBytes* request) override;
  BidiReactor* Exchange(CallContext* context) override;
  WriteReactor* Pull(CallContext* context, const MessageBytes* request) override;
  WriteReactor* Snapshot(CallContext* context, const MessageBytes* request) override;

  template <typename Request>
  static std::optional<uint32_t> SlotOf(const Request& request) {
    return request.has_slot() ? std::optional<uint32_t>(request.slot()) : std::nullopt;
  }
  // Errors: PERMISSION_DENIED unless the caller may be this worker.
  absl::Status CheckWorker(const CallContext& context, uint32_t worker) const;
  // Returns the shard of the slot that a worker's request names. Errors: those of CheckWorker and
  // Find.
  template <typename Request>
  absl::StatusOr<std::shared_ptr<Shard>> ShardFor(const CallContext& context,
                                                  const Request& request) const {
    RETURN_IF_ERROR(CheckWorker(context, request.worker()));
    return Find(SlotOf(request));
  }
  // Returns the shard of a slot. Errors: UNAVAILABLE if this process is not its primary now.
  absl::StatusOr<std::shared_ptr<Shard>> Find(std::optional<uint32_t> slot) const;
  // The slot that a call's metadata name, if they do. Errors: those of MetadataNumber.
  static absl::StatusOr<std::optional<uint32_t>> SlotIn(const CallContext& context);
  // Which transfer the metadata of SendWorkerState name. Errors: those of MetadataNumber, Find and
  // Shard::CheckSendsState.
  struct StateTransfer {
    int slot;
    uint64_t ticket;
  };
  absl::StatusOr<StateTransfer> TransferOf(const CallContext& context) const;
  // What the metadata of an Exchange call say. Errors: those of MetadataNumber and of Find.
  absl::StatusOr<ExchangeStream::Options> OptionsOf(const CallContext& context);
  void EndStreams(const Shard* shard, const absl::Status& status);
  // Returns the Exchange streams whose RPCs are not done. Their methods must be called without the
  // lock, because OnDone acquires it.
  std::vector<std::shared_ptr<ExchangeStream>> Streams();

  const Options options_;
  AttendanceLog attendance_;
  OpenPulls pulls_;    // of workers, which a reader must not keep from beginning or coming back
  OpenPulls readers_;  // the other Pulls
  OpenPulls snapshots_;
  OpenPulls states_;
  StateRelay state_relay_;
  absl::Mutex mutex_;
  std::set<std::shared_ptr<ExchangeStream>> streams_ ABSL_GUARDED_BY(mutex_);
  ChunkThreads push_threads_;  // destroyed first, because its threads use the other members
};

}  // namespace evenshard

#endif  // EVENSHARD_SERVER_RPC_PARAMETER_SERVICE_H_
