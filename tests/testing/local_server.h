#ifndef EVENSHARD_TESTS_TESTING_LOCAL_SERVER_H_
#define EVENSHARD_TESTS_TESTING_LOCAL_SERVER_H_

#include <catch2/catch.hpp>
#include <memory>
#include <string>

#include "absl/strings/str_cat.h"
#include "grpcpp/grpcpp.h"

namespace evenshard {

// A gRPC server of one service, on a free port of this machine. A service that owns it has it as
// its last member, so that no call comes when others are gone.
class LocalServer {
 public:
  explicit LocalServer(grpc::Service* service) {
    int port = 0;
    grpc::ServerBuilder builder;
    builder.AddListeningPort("127.0.0.1:0", grpc::InsecureServerCredentials(), &port);
    builder.RegisterService(service);
    server_ = builder.BuildAndStart();
    REQUIRE(server_ != nullptr);
    address_ = absl::StrCat("127.0.0.1:", port);
  }
  ~LocalServer() { server_->Shutdown(); }

  const std::string& address() const { return address_; }

 private:
  std::string address_;
  std::unique_ptr<grpc::Server> server_;
};

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TESTING_LOCAL_SERVER_H_
