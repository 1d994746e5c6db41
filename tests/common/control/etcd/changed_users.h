#ifndef EVENSHARD_TESTS_COMMON_CONTROL_ETCD_CHANGED_USERS_H_
#define EVENSHARD_TESTS_COMMON_CONTROL_ETCD_CHANGED_USERS_H_

#include <atomic>
#include <catch2/catch.hpp>
#include <filesystem>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "absl/time/clock.h"
#include "grpcpp/grpcpp.h"
#include "proto/config.pb.h"
#include "proto/etcd/rpc.grpc.pb.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {

// An etcd without keys, whose users or roles change: it refuses the tokens that it gave before.
class ChangedUsers final : public etcdserverpb::KV::Service,
                           public etcdserverpb::Auth::Service,
                           public etcdserverpb::Watch::Service {
 public:
  ChangedUsers() {
    access_.set_user("root");
    access_.set_password_file(folder_.Write("password", "right\n"));
    std::filesystem::permissions(access_.password_file(), std::filesystem::perms::owner_read);
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(static_cast<etcdserverpb::KV::Service*>(this));
    builder.RegisterService(static_cast<etcdserverpb::Auth::Service*>(this));
    builder.RegisterService(static_cast<etcdserverpb::Watch::Service*>(this));
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    endpoint_ = absl::StrCat("127.0.0.1:", port);
  }
  ~ChangedUsers() override { server_->Shutdown(); }

  const std::string& endpoint() const { return endpoint_; }
  const Recovery::Etcd& access() const { return access_; }
  // Ends all watches too, as a member that restarts.
  void Change() { ++revision_; }

  grpc::Status Authenticate(grpc::ServerContext*, const etcdserverpb::AuthenticateRequest*,
                            etcdserverpb::AuthenticateResponse* response) override {
    response->set_token(Token(revision_));
    return grpc::Status::OK;
  }
  grpc::Status Range(grpc::ServerContext* context, const etcdserverpb::RangeRequest*,
                     etcdserverpb::RangeResponse*) override {
    return HasToken(*context, revision_) ? grpc::Status::OK
                                         : grpc::Status(grpc::StatusCode::INVALID_ARGUMENT, kOld);
  }
  grpc::Status Watch(grpc::ServerContext* context,
                     grpc::ServerReaderWriter<etcdserverpb::WatchResponse,
                                              etcdserverpb::WatchRequest>* stream) override {
    const int revision = revision_;
    const bool permitted = HasToken(*context, revision);
    etcdserverpb::WatchRequest request;
    stream->Read(&request);
    etcdserverpb::WatchResponse response;
    response.set_created(true);
    response.set_canceled(!permitted);
    if (!permitted) response.set_cancel_reason(kOld);
    stream->Write(response);
    while (permitted && revision == revision_ && !context->IsCancelled()) {
      absl::SleepFor(absl::Milliseconds(5));
    }
    return grpc::Status::OK;
  }

 private:
  static constexpr char kOld[] = "etcdserver: revision of auth store is old";

  static std::string Token(int revision) { return absl::StrCat("token-", revision); }
  static bool HasToken(const grpc::ServerContext& context, int revision) {
    const auto found = context.client_metadata().find("token");
    return found != context.client_metadata().end() && found->second == Token(revision).c_str();
  }

  const ScratchFolder folder_;
  Recovery::Etcd access_;
  std::atomic<int> revision_ = 1;
  std::string endpoint_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_CONTROL_ETCD_CHANGED_USERS_H_
