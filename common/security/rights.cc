#include "common/security/rights.h"

#include <limits>

#include "absl/algorithm/container.h"
#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/security/refusal_log.h"
#include "grpc/grpc_security_constants.h"

namespace evenshard {

absl::Span<const MethodRights> AllRights() {
  using enum Role;
  static const auto* const kRights = new std::vector<MethodRights>{
      {"/evenshard.v1.ParameterServer/Join", {kWorker}},
      {"/evenshard.v1.ParameterServer/Leave", {kWorker}},
      {"/evenshard.v1.ParameterServer/Exchange", {kWorker}},
      {"/evenshard.v1.ParameterServer/Report", {kWorker}},
      {"/evenshard.v1.ParameterServer/Mean", {kWorker}},
      {"/evenshard.v1.ParameterServer/KeepState", {kWorker}},
      {"/evenshard.v1.ParameterServer/TakeState", {kWorker}},
      {"/evenshard.v1.ParameterServer/AskWorkerState", {kWorker}},
      {"/evenshard.v1.ParameterServer/OfferWorkerState", {kWorker}},
      {"/evenshard.v1.ParameterServer/SendWorkerState", {kWorker}},
      {"/evenshard.v1.ParameterServer/ReceiveWorkerState", {kWorker}},
      {"/evenshard.v1.ParameterServer/Pull", {kWorker, kOperator, kReader}},
      {"/evenshard.v1.ParameterServer/Snapshot", {kOperator, kReader}},

      {"/evenshard.v1.Agreement/Agree", {kShard}},
      {"/evenshard.v1.Replication/Replicate", {kShard}},

      {"/evenshard.v1.Ring/Join", {kWorker}},
      {"/evenshard.v1.Ring/Reduce", {kWorker}},
      {"/evenshard.v1.Ring/Gather", {kWorker}},
      {"/evenshard.v1.Ring/Fail", {kWorker}},
      {"/evenshard.v1.Ring/Tell", {kWorker}},
      {"/evenshard.v1.Ring/Ask", {kWorker}},
      {"/evenshard.v1.Ring/GetStats", {kOperator, kReader}},

      {"/evenshard.v1.Admin/GetStats", {kOperator, kReader}},
      {"/evenshard.v1.Admin/GetView", {kWorker, kShard, kOperator, kReader}},
      {"/evenshard.v1.Admin/GetDeclaration", {kOperator, kReader}},
      {"/evenshard.v1.Admin/Shutdown", {kOperator}},

      {"/grpc.health.v1.Health/Check", {kWorker, kShard, kOperator, kReader}},
      {"/grpc.health.v1.Health/Watch", {kOperator, kReader}},
      {"/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo", {kOperator}},
  };
  return *kRights;
}

bool MayCall(const Identity& identity, absl::string_view method) {
  const absl::Span<const MethodRights> all = AllRights();
  const auto row =
      absl::c_find_if(all, [&](const MethodRights& each) { return each.method == method; });
  return row != all.end() &&
         absl::c_any_of(row->roles, [&](Role role) { return identity.Has(role); });
}

Identity IdentityIn(const grpc::AuthContext* context, const Security& security) {
  const auto kinds = context->FindPropertyValues(GRPC_TRANSPORT_SECURITY_TYPE_PROPERTY_NAME);
  const bool is_tls = absl::c_any_of(kinds, [](const grpc::string_ref& kind) {
    return kind == GRPC_TLS_TRANSPORT_SECURITY_TYPE || kind == GRPC_SSL_TRANSPORT_SECURITY_TYPE;
  });
  if (!is_tls) return Identity::Anybody();
  std::vector<std::string> uris;
  for (const grpc::string_ref& uri : context->FindPropertyValues(GRPC_PEER_URI_PROPERTY_NAME)) {
    uris.emplace_back(uri.data(), uri.size());
  }
  const absl::StatusOr<Identity> identity = Identity::Of(uris, security.run());
  return identity.ok() ? *identity : Identity::Nobody(identity.status().message());
}

Identity CallerOf(const grpc::ServerContextBase& context, const Security& security) {
  return IdentityIn(context.auth_context().get(), security);
}

absl::Status CheckCaller(const grpc::ServerContextBase& context, const Security& security,
                         const ProcessName& process) {
  const Identity caller = CallerOf(context, security);
  // A number that is too large for an int is nobody's, and does not stand for any.
  const int index = process.index < 0 ? std::numeric_limits<int>::max() : process.index;
  if (caller.MayBe({.role = process.role, .index = index})) return absl::OkStatus();
  LogRefusal(absl::StrCat(Printable(context.peer()), " is ", caller.ToString(), ", and speaks as ",
                          process.ToString()));
  return absl::PermissionDeniedError(kRefused);
}

}  // namespace evenshard
