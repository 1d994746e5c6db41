#include "bench/wire/empty_call.h"

#include <chrono>

#include "common/net/status_conversion.h"

namespace evenshard {

EmptyCall::~EmptyCall() {
  queue_.Shutdown();
  void* tag = nullptr;
  bool ok = false;
  while (queue_.Next(&tag, &ok)) {
  }
}

absl::Status EmptyCall::Run() {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(10));
  const grpc::Slice nothing;
  const grpc::ByteBuffer request(&nothing, 1);
  auto call = stub_.PrepareUnaryCall(&context, "/grpc.health.v1.Health/Check", request, &queue_);
  call->StartCall();
  grpc::ByteBuffer response;
  grpc::Status status;
  call->Finish(&response, &status, /*tag=*/this);
  void* tag = nullptr;
  bool ok = false;
  queue_.Next(&tag, &ok);
  return FromGrpc(status);
}

}  // namespace evenshard
