#ifndef EVENSHARD_COMMON_SECURITY_RIGHTS_H_
#define EVENSHARD_COMMON_SECURITY_RIGHTS_H_

#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/security/identity.h"
#include "grpcpp/security/auth_context.h"
#include "grpcpp/server_context.h"
#include "proto/config.pb.h"

namespace evenshard {

// A method of a service that a process of a run offers, and the roles that may call it.
struct MethodRights {
  absl::string_view method;  // "/evenshard.v1.Admin/GetStats"
  std::vector<Role> roles;
};

// All of them. A method without a row may be called by nobody.
absl::Span<const MethodRights> AllRights();

// Whether somebody may call a method at all.
bool MayCall(const Identity& identity, absl::string_view method);

// Who is at the other end of a connection, or of a call. Without TLS, anybody.
Identity IdentityIn(const grpc::AuthContext* context, const Security& security);
Identity CallerOf(const grpc::ServerContextBase& context, const Security& security);

// Errors: PERMISSION_DENIED with kRefused, while the log has the rest, unless the caller may be
// this process.
absl::Status CheckCaller(const grpc::ServerContextBase& context, const Security& security,
                         const ProcessName& process);

// All that those who have no right are told.
inline constexpr char kRefused[] = "refused";

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_SECURITY_RIGHTS_H_
