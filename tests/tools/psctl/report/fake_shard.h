#ifndef EVENSHARD_TESTS_TOOLS_PSCTL_REPORT_FAKE_SHARD_H_
#define EVENSHARD_TESTS_TOOLS_PSCTL_REPORT_FAKE_SHARD_H_

#include <atomic>
#include <catch2/catch.hpp>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/base/thread_annotations.h"
#include "absl/synchronization/mutex.h"
#include "grpcpp/grpcpp.h"
#include "proto/admin.grpc.pb.h"
#include "proto/parameter_server.grpc.pb.h"

namespace evenshard {

// A server that answers what the operator's tools ask of a shard as the test says. Thread-safe.
class FakeShard final : public Admin::Service, public ParameterServer::Service {
 public:
  FakeShard() {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(static_cast<Admin::Service*>(this));
    builder.RegisterService(static_cast<ParameterServer::Service*>(this));
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = "127.0.0.1:" + std::to_string(port);
  }
  ~FakeShard() override { server_->Shutdown(); }

  const std::string& address() const { return address_; }

  struct Answers {
    ShardStats stats;                    // GetStats says whose they are: `shard` is the slot
    View view;                           // what GetView answers
    std::vector<ParameterChunk> chunks;  // what Pull and Snapshot send
    grpc::Status pull_status;            // and how Pull ends
    grpc::Status snapshot_status;        // and Snapshot
  };
  Answers answers() const {
    absl::MutexLock lock(&mutex_);
    return answers_;
  }
  // Changes the answers of the calls that follow.
  void Change(const std::function<void(Answers*)>& change) {
    absl::MutexLock lock(&mutex_);
    change(&answers_);
  }

  std::atomic<bool> shut_down = false;
  std::atomic<uint64_t> pulled_plan = 0;  // by either
  std::atomic<uint64_t> pulls = 0;
  std::atomic<uint64_t> snapshot_iteration = 0;

  grpc::Status GetStats(grpc::ServerContext*, const GetStatsRequest* request,
                        ShardStats* response) override {
    *response = answers().stats;
    response->set_shard(request->slot());
    return grpc::Status::OK;
  }

  grpc::Status GetView(grpc::ServerContext*, const GetViewRequest*, View* response) override {
    *response = answers().view;
    return grpc::Status::OK;
  }

  grpc::Status Shutdown(grpc::ServerContext*, const ShutdownRequest*, ShutdownResponse*) override {
    shut_down = true;
    return grpc::Status::OK;
  }

  grpc::Status Pull(grpc::ServerContext*, const PullRequest* request,
                    grpc::ServerWriter<ParameterChunk>* writer) override {
    pulled_plan = request->plan_fingerprint();
    ++pulls;
    const Answers answers = this->answers();
    for (const ParameterChunk& chunk : answers.chunks) writer->Write(chunk);
    return answers.pull_status;
  }

  grpc::Status Snapshot(grpc::ServerContext*, const SnapshotRequest* request,
                        grpc::ServerWriter<ParameterChunk>* writer) override {
    pulled_plan = request->plan_fingerprint();
    snapshot_iteration = request->iteration();
    Answers answers = this->answers();
    for (ParameterChunk& chunk : answers.chunks) {
      chunk.set_iteration(request->iteration());
      writer->Write(chunk);
    }
    return answers.snapshot_status;
  }

 private:
  mutable absl::Mutex mutex_;
  Answers answers_ ABSL_GUARDED_BY(mutex_);

  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TOOLS_PSCTL_REPORT_FAKE_SHARD_H_
