#ifndef EVENSHARD_COMMON_NET_RAW_CALL_H_
#define EVENSHARD_COMMON_NET_RAW_CALL_H_

#include "absl/functional/function_ref.h"
#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/str_cat.h"
#include "common/net/status_conversion.h"
#include "grpcpp/impl/codegen/proto_utils.h"
#include "grpcpp/server_context.h"
#include "grpcpp/support/byte_buffer.h"
#include "grpcpp/support/server_callback.h"

namespace evenshard {

// What the project's raw callback methods get and return.
using CallContext = grpc::CallbackServerContext;
using MessageBytes = grpc::ByteBuffer;
using UnaryReactor = grpc::ServerUnaryReactor;
using BidiReactor = grpc::ServerBidiReactor<MessageBytes, MessageBytes>;
using WriteReactor = grpc::ServerWriteReactor<MessageBytes>;
using ReadReactor = grpc::ServerReadReactor<MessageBytes>;

// Parses a message. Errors: INVALID_ARGUMENT if `bytes` are malformed.
template <typename Message>
absl::StatusOr<Message> ParseMessage(const MessageBytes& bytes) {
  MessageBytes read(bytes);  // Deserialize empties what it reads
  Message message;
  if (grpc::SerializationTraits<Message>::Deserialize(&read, &message).ok()) return message;
  return absl::InvalidArgumentError(absl::StrCat("malformed ", Message::descriptor()->name()));
}

// Answers a unary call of a raw callback method with what `handle` returns for the request, or with
// INVALID_ARGUMENT if the request is malformed. The project's methods are raw because generated
// code answers a malformed request with UNIMPLEMENTED and no message, as if the method did not
// exist.
template <typename Request, typename Response>
UnaryReactor* AnswerUnary(CallContext* context, const MessageBytes& request, MessageBytes* response,
                          absl::FunctionRef<absl::StatusOr<Response>(const Request&)> handle) {
  UnaryReactor* const reactor = context->DefaultReactor();
  const absl::StatusOr<Request> parsed = ParseMessage<Request>(request);
  const absl::StatusOr<Response> answer = parsed.ok() ? handle(*parsed) : parsed.status();
  if (!answer.ok()) {
    reactor->Finish(ToGrpc(answer.status()));
    return reactor;
  }
  bool owns_buffer = false;
  reactor->Finish(grpc::SerializationTraits<Response>::Serialize(*answer, response, &owns_buffer));
  return reactor;
}

// A stream that is refused at once. Deletes itself.
template <typename Reactor>
class Refused final : public Reactor {
 public:
  explicit Refused(const absl::Status& reason) { this->Finish(ToGrpc(reason)); }
  void OnDone() override { delete this; }
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_NET_RAW_CALL_H_
