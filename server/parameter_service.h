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

// Translates the ParameterServer RPCs into calls of a Shard. All methods are raw: Exchange and Pull
// so that chunk messages need no generated classes, which would copy the data, and the others for
// the reason given at AnswerUnary. Thread-safe.
class ParameterService final
    : public ParameterServer::WithRawCallbackMethod_Join<
          ParameterServer::WithRawCallbackMethod_Leave<
              ParameterServer::WithRawCallbackMethod_Report<
                  ParameterServer::WithRawCallbackMethod_Exchange<
                      ParameterServer::WithRawCallbackMethod_Pull<ParameterServer::Service>>>>> {
 public:
  // `shard` must outlive the service. If its run fails, the service ends the open Exchange streams.
  explicit ParameterService(Shard* shard);

  // Ends every open Exchange stream with `status`.
  void EndStreams(const absl::Status& status);
  // Ends the Exchange streams that have waited for their worker's Join for too long. Called about
  // once a second.
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

  // Returns the Exchange streams whose RPCs are not done. Their methods must be called without the
  // lock, because OnDone acquires it.
  std::vector<std::shared_ptr<ExchangeStream>> Streams();

  Shard* const shard_;
  OpenPulls pulls_;
  absl::Mutex mutex_;
  std::set<std::shared_ptr<ExchangeStream>> streams_ ABSL_GUARDED_BY(mutex_);
  PushThreads push_threads_;  // destroyed first, because its threads use the other members
};

}  // namespace ps

#endif  // PS_SERVER_PARAMETER_SERVICE_H_
