#ifndef EVENSHARD_TESTS_SECURITY_SECURE_CLUSTER_H_
#define EVENSHARD_TESTS_SECURITY_SECURE_CLUSTER_H_

#include <chrono>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/security/credentials.h"
#include "common/security/identity.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/generic/generic_stub.h"
#include "grpcpp/grpcpp.h"
#include "tests/testing/certificates.h"
#include "tests/testing/cluster.h"
#include "tests/testing/scratch_folder.h"

namespace evenshard {

// Shards that want certificates of run "run", and callers with all kinds of them. In this process
// all shards and workers have one certificate, which names them all.
class SecureCluster {
 public:
  explicit SecureCluster(std::vector<std::string> overrides = {},
                         const std::string& text = kSmallConfig) {
    authority_.Issue("all", {.names = {"URI:evenshard://run/worker/0-9",
                                       "URI:evenshard://run/shard/0-9", "IP:127.0.0.1"}});
    overrides.push_back(authority_.Override("all"));
    cluster_.emplace(MustParse(text, overrides));
  }

  TestCluster& cluster() { return *cluster_; }
  const ScratchFolder& folder() const { return folder_; }
  const TestAuthority& authority() const { return authority_; }
  const std::string& address() const { return cluster_->addresses()[0]; }

  // The `security` of a caller with a certificate of these names.
  Security Caller(const std::string& name, const TestAuthority::Certificate& certificate) const {
    return Caller(authority_, name, certificate);
  }
  Security Caller(const TestAuthority& authority, const std::string& name,
                  const TestAuthority::Certificate& certificate) const {
    authority.Issue(name, certificate);
    return authority_.SecurityOf(name);
  }

  std::shared_ptr<grpc::Channel> Channel(const Security& caller) const {
    grpc::ChannelArguments arguments;
    arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
    return grpc::CreateCustomChannel(
        address(), ChannelCredentialsFor(address(), caller, {.role = Role::kShard}), arguments);
  }

 private:
  const ScratchFolder folder_;
  const TestAuthority authority_{folder_, "authority"};
  std::optional<TestCluster> cluster_;
};

// Calls any method with one message, and returns the first answer, if one came, and the status.
struct Answer {
  grpc::Status status;
  std::string bytes;
};
inline Answer CallAny(const std::shared_ptr<grpc::Channel>& channel, const std::string& method,
                      const std::string& request,
                      const std::vector<std::pair<std::string, std::string>>& metadata = {}) {
  grpc::ClientContext context;
  context.set_deadline(std::chrono::system_clock::now() + std::chrono::seconds(5));
  for (const auto& [key, value] : metadata) context.AddMetadata(key, value);
  grpc::CompletionQueue queue;
  grpc::GenericStub stub(channel);
  const auto await = [&queue] {
    void* tag = nullptr;
    bool ok = false;
    return queue.Next(&tag, &ok) && ok;
  };
  const auto stream = stub.PrepareCall(&context, method, &queue);
  Answer answer;
  grpc::ByteBuffer reply;
  const grpc::Slice bytes(request);
  stream->StartCall(nullptr);
  if (await()) {
    stream->WriteLast(grpc::ByteBuffer(&bytes, 1), grpc::WriteOptions(), nullptr);
    await();
    stream->Read(&reply, nullptr);
    if (await()) {
      grpc::Slice whole;
      REQUIRE(reply.DumpToSingleSlice(&whole).ok());
      answer.bytes.assign(reinterpret_cast<const char*>(whole.begin()), whole.size());
      context.TryCancel();  // a stream may go on
    }
  }
  stream->Finish(&answer.status, nullptr);
  await();
  return answer;
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SECURITY_SECURE_CLUSTER_H_
