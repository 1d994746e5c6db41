#include "common/security/credentials.h"

#include <functional>
#include <iterator>
#include <map>
#include <optional>
#include <tuple>
#include <utility>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/base/thread_annotations.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/synchronization/mutex.h"
#include "absl/time/time.h"
#include "common/base/address.h"
#include "common/base/text.h"
#include "common/security/expiry_watch.h"
#include "common/security/refusal_log.h"
#include "common/security/rights.h"
#include "common/security/tls_files.h"
#include "grpcpp/security/auth_metadata_processor.h"
#include "grpcpp/security/tls_certificate_provider.h"
#include "grpcpp/security/tls_certificate_verifier.h"
#include "grpcpp/security/tls_credentials_options.h"

namespace evenshard {
namespace {

using grpc::experimental::CertificateProviderInterface;
using grpc::experimental::FileWatcherCertificateProvider;
using grpc::experimental::TlsCustomVerificationCheckRequest;

constexpr int kRereadSeconds = 5;
constexpr absl::Duration kExpiryPeriod = absl::Hours(6);

bool UsesTls(const Security& security, absl::string_view address) {
  return !security.certificate().empty() && !absl::StartsWith(address, "unix:");
}

// What gRPC reads the files with, by a thread of its own, which all connections of a process share,
// and what tells that the certificate ends soon. They stay until the process ends.
std::shared_ptr<CertificateProviderInterface> ProviderOf(const Security& security) {
  using Files = std::tuple<std::string, std::string, std::string>;
  struct Providers {
    absl::Mutex mutex;
    std::map<Files, std::shared_ptr<CertificateProviderInterface>> by_files ABSL_GUARDED_BY(mutex);
    std::vector<std::unique_ptr<ExpiryWatch>> watches ABSL_GUARDED_BY(mutex);
  };
  static auto* const providers = new Providers;
  absl::MutexLock lock(&providers->mutex);
  std::shared_ptr<CertificateProviderInterface>& provider =
      providers->by_files[{security.key(), security.certificate(), security.authority()}];
  if (provider == nullptr) {
    provider = std::make_shared<FileWatcherCertificateProvider>(
        security.key(), security.certificate(), security.authority(), kRereadSeconds);
    providers->watches.push_back(std::make_unique<ExpiryWatch>(security, kExpiryPeriod));
  }
  return provider;
}

std::vector<std::string> Strings(const std::vector<grpc::string_ref>& references) {
  std::vector<std::string> strings;
  for (const grpc::string_ref& each : references) strings.emplace_back(each.data(), each.size());
  return strings;
}

// Whether the certificate that a server shows, and that the authority has signed, is the peer's.
class PeerVerifier final : public grpc::experimental::ExternalCertificateVerifier {
 public:
  PeerVerifier(std::string address, const Security& security, const ProcessName& peer)
      : address_(std::move(address)), run_(security.run()), peer_(peer) {}

  bool Verify(TlsCustomVerificationCheckRequest* request, std::function<void(grpc::Status)>,
              grpc::Status* outcome) override {
    const std::string problem = ProblemOf(*request);
    *outcome = grpc::Status::OK;
    if (!problem.empty()) {
      LogRefusal(absl::StrCat(address_, " is not spoken to: ", problem));
      *outcome = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, problem);
    }
    return true;
  }
  void Cancel(TlsCustomVerificationCheckRequest*) override {}

 private:
  std::string ProblemOf(const TlsCustomVerificationCheckRequest& request) const {
    const absl::StatusOr<Identity> identity = Identity::Of(Strings(request.uri_names()), run_);
    if (!identity.ok()) return std::string(identity.status().message());
    if (!identity->MayBe(peer_)) {
      return absl::StrCat("its certificate is of ", identity->ToString(), " in run ", run_,
                          ", allowed: of ", peer_.ToString());
    }
    std::vector<std::string> hosts = Strings(request.dns_names());
    absl::c_copy(Strings(request.ip_names()), std::back_inserter(hosts));
    const std::optional<Address> address = ParseAddress(address_);
    const std::string host = address.has_value() ? address->host : "";
    const bool is_host = hosts.empty() || absl::c_any_of(hosts, [&](const std::string& each) {
                           return absl::EqualsIgnoreCase(each, host);
                         });
    if (is_host) return "";
    return absl::StrCat("its certificate is of the hosts ", Printable(absl::StrJoin(hosts, ", ")),
                        ", allowed: of ", host);
  }

  const std::string address_;
  const std::string run_;
  const ProcessName peer_;
};

// Refuses each call to whose method the certificate gives no right.
class RightsProcessor final : public grpc::AuthMetadataProcessor {
 public:
  explicit RightsProcessor(Security security) : security_(std::move(security)) {}

  bool IsBlocking() const override { return false; }
  grpc::Status Process(const InputMetadata& metadata, grpc::AuthContext* context, OutputMetadata*,
                       OutputMetadata*) override {
    const auto path = metadata.find(":path");
    const std::string method =
        path == metadata.end() ? "" : std::string(path->second.data(), path->second.size());
    const Identity caller = IdentityIn(context, security_);
    if (MayCall(caller, method)) return grpc::Status::OK;
    LogRefusal(absl::StrCat("a call of ", Printable(method, 100), " by ", caller.ToString()));
    return {grpc::StatusCode::PERMISSION_DENIED, kRefused};
  }

 private:
  const Security security_;
};

void SetFiles(const Security& security, grpc::experimental::TlsCredentialsOptions* options) {
  options->set_certificate_provider(ProviderOf(security));
  options->watch_root_certs();
  options->watch_identity_key_cert_pairs();
  options->set_check_call_host(false);  // names are roles, which PeerVerifier knows
}

}  // namespace

std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& address,
                                                                const Security& security,
                                                                const ProcessName& peer) {
  if (!UsesTls(security, address)) {
    return AllowsPlaintext(security, address) ? grpc::InsecureChannelCredentials() : nullptr;
  }
  grpc::experimental::TlsChannelCredentialsOptions options;
  SetFiles(security, &options);
  options.set_certificate_verifier(
      grpc::experimental::ExternalCertificateVerifier::Create<PeerVerifier>(address, security,
                                                                            peer));
  return grpc::experimental::TlsCredentials(options);
}

std::shared_ptr<grpc::ChannelCredentials> ServiceCredentials(const std::string& authority,
                                                             const std::string& certificate,
                                                             const std::string& key) {
  grpc::experimental::TlsChannelCredentialsOptions options;
  options.watch_root_certs();
  if (certificate.empty()) {
    options.set_certificate_provider(
        std::make_shared<FileWatcherCertificateProvider>(authority, kRereadSeconds));
  } else {
    options.set_certificate_provider(std::make_shared<FileWatcherCertificateProvider>(
        key, certificate, authority, kRereadSeconds));
    options.watch_identity_key_cert_pairs();
  }
  options.set_certificate_verifier(
      std::make_shared<grpc::experimental::HostNameCertificateVerifier>());
  return grpc::experimental::TlsCredentials(options);
}

absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(
    const std::string& address, const Security& security) {
  if (!UsesTls(security, address)) {
    if (AllowsPlaintext(security, address)) return grpc::InsecureServerCredentials();
    return absl::FailedPreconditionError(
        "other hosts can reach it, and nothing says who may do what, allowed: security { "
        "certificate key authority }, or security { insecure: true }");
  }
  grpc::experimental::TlsServerCredentialsOptions options(ProviderOf(security));
  SetFiles(security, &options);
  options.set_cert_request_type(GRPC_SSL_REQUEST_AND_REQUIRE_CLIENT_CERTIFICATE_AND_VERIFY);
  options.set_certificate_verifier(std::make_shared<grpc::experimental::NoOpCertificateVerifier>());
  std::shared_ptr<grpc::ServerCredentials> credentials =
      grpc::experimental::TlsServerCredentials(options);
  credentials->SetAuthMetadataProcessor(std::make_shared<RightsProcessor>(security));
  return credentials;
}

}  // namespace evenshard
