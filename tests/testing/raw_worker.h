#ifndef EVENSHARD_TESTS_TESTING_RAW_WORKER_H_
#define EVENSHARD_TESTS_TESTING_RAW_WORKER_H_

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "grpcpp/grpcpp.h"
#include "proto/parameter_server.grpc.pb.h"
#include "tests/testing/chunk_messages.h"
#include "tests/testing/cluster.h"

namespace evenshard {

// A worker made of gRPC's generated code, with one Exchange stream to shard 0.
class RawWorker {
 public:
  RawWorker(const TestCluster& cluster, int rank, bool joins = true)
      : stub_(ParameterServer::NewStub(
            grpc::CreateChannel(cluster.addresses()[0], grpc::InsecureChannelCredentials()))) {
    chunk_.set_worker(rank);
    chunk_.set_incarnation(4711 + rank);
    chunk_.set_data(std::string(256 * sizeof(float), '\0'));
    context_.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(60));
    if (joins) {
      const JoinRequest request = cluster.RequestToJoin(rank, chunk_.incarnation());
      grpc::ClientContext context;
      JoinResponse response;
      const grpc::Status status = stub_->Join(&context, request, &response);
      INFO(status.error_message());
      REQUIRE(status.ok());
    }
    context_.AddMetadata("ps-worker", std::to_string(rank));
    context_.AddMetadata("ps-incarnation", std::to_string(chunk_.incarnation()));
    stream_ = stub_->Exchange(&context_);
  }

  GradientChunk& chunk() { return chunk_; }  // chunk 0 of iteration 0, all zeros
  void Send() { stream_->Write(MessageOf(chunk_)); }
  bool Receive(ParameterChunk* reply) { return answers_.Read(*stream_, reply); }
  void HalfClose() { stream_->WritesDone(); }
  void Vanish() { context_.TryCancel(); }

  // Waits for the end of the stream and returns the error with which the shard ended it.
  grpc::Status Refused() {
    ParameterChunk reply;
    while (Receive(&reply)) {
    }
    return stream_->Finish();
  }

 private:
  std::unique_ptr<ParameterServer::Stub> stub_;
  grpc::ClientContext context_;
  std::unique_ptr<grpc::ClientReaderWriter<GradientChunks, ParameterChunks>> stream_;
  ChunkReader<ParameterChunks> answers_;
  GradientChunk chunk_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_RAW_WORKER_H_
