#ifndef PS_SERVER_PARAMETER_SERVICE_H_
#define PS_SERVER_PARAMETER_SERVICE_H_

#include <memory>
#include <set>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/status/status.h"
#include "absl/synchronization/mutex.h"
#include "proto/parameter_server.grpc.pb.h"
#include "server/exchange_stream.h"
#include "server/pull_stream.h"
#include "server/push_threads.h"
#include "server/shard.h"

namespace ps {

// Translates the ParameterServer RPCs into calls of a Shard. All methods are raw: the chunk
// messages of Exchange and Pull are never turned into generated classes, and for the others see
// AnswerUnary. Thread-safe.
class ParameterService final
    : public ParameterServer::WithRawCallbackMethod_Join<
          ParameterServer::WithRawCallbackMethod_Leave<
              ParameterServer::WithRawCallbackMethod_Report<
                  ParameterServer::WithRawCallbackMethod_Exchange<
                      ParameterServer::WithRawCallbackMethod_Pull<ParameterServer::Service>>>>> {
 public:
  // `shard` must outlive the service; its failure ends the open Exchange streams.
  explicit ParameterService(Shard* shard);

  // Ends every open Exchange stream with `status`.
  void EndStreams(const absl::Status& status);
  // Ends the Exchange streams that have waited for their worker's Join for too long; to be called
  // about every second.
  void EndWaitingStreams();

  // See OpenPulls::EndUnread.
  void EndUnreadPulls() { pulls_.EndUnread(); }

 private:
  grpc::ServerUnaryReactor* Join(grpc::CallbackServerContext* context,
                                 const grpc::ByteBuffer* request,
                                 grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Leave(grpc::CallbackServerContext* context,
                                  const grpc::ByteBuffer* request,
                                  grpc::ByteBuffer* response) override;
  grpc::ServerUnaryReactor* Report(grpc::CallbackServerContext* context,
                                   const grpc::ByteBuffer* request,
                                   grpc::ByteBuffer* response) override;
  grpc::ServerBidiReactor<grpc::ByteBuffer, grpc::ByteBuffer>* Exchange(
      grpc::CallbackServerContext* context) override;
  grpc::ServerWriteReactor<grpc::ByteBuffer>* Pull(grpc::CallbackServerContext* context,
                                                   const grpc::ByteBuffer* request) override;

  // Those that are open now; to be called upon without the lock.
  std::vector<std::shared_ptr<ExchangeStream>> Streams();

  Shard* const shard_;
  OpenPulls pulls_;
  absl::Mutex mutex_;
  std::set<std::shared_ptr<ExchangeStream>> streams_ ABSL_GUARDED_BY(mutex_);
  PushThreads push_threads_;  // ends before what its threads use
};

}  // namespace ps

#endif  // PS_SERVER_PARAMETER_SERVICE_H_
