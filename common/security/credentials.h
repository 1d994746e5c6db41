#ifndef EVENSHARD_COMMON_SECURITY_CREDENTIALS_H_
#define EVENSHARD_COMMON_SECURITY_CREDENTIALS_H_

#include <memory>
#include <string>

#include "absl/status/statusor.h"
#include "common/security/identity.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/security/server_credentials.h"
#include "proto/config.pb.h"

// gRPC's credentials for both ends of a connection: mTLS on TCP if `security` has a certificate,
// and plaintext on unix sockets, of which the kernel knows the user, and where AllowsPlaintext says
// so. The files are read again when they change, for connections that begin after that.

namespace evenshard {

// The credentials to connect to `peer` at `address`. A server that cannot prove to be `peer`, or
// whose certificate names hosts and not that of `address`, is not spoken to, and the log says why.
// Returns null where plaintext is not allowed: the channel's calls fail then.
std::shared_ptr<grpc::ChannelCredentials> ChannelCredentialsFor(const std::string& address,
                                                                const Security& security,
                                                                const ProcessName& peer);

// The credentials to listen on `address`. With TLS, each call needs a certificate with a right to
// its method (common/security/rights.h). Errors: FAILED_PRECONDITION where plaintext is not
// allowed.
absl::StatusOr<std::shared_ptr<grpc::ServerCredentials>> ServerCredentialsFor(
    const std::string& address, const Security& security);

// The credentials to connect to a service that is none of the run's, by TLS: its certificate must
// be signed by `authority` and be of its host. `certificate` and `key` are for a service that wants
// to know who asks, and otherwise empty. All are files in PEM.
std::shared_ptr<grpc::ChannelCredentials> ServiceCredentials(const std::string& authority,
                                                             const std::string& certificate,
                                                             const std::string& key);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_SECURITY_CREDENTIALS_H_
