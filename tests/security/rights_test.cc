// Every method of every service that a shard offers, against every kind of caller.

#include "common/security/rights.h"

#include <google/protobuf/descriptor.pb.h>
#include <google/protobuf/unknown_field_set.h>

#include <catch2/catch.hpp>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "absl/algorithm/container.h"
#include "absl/strings/match.h"
#include "common/wire/exchange_metadata.h"
#include "proto/agreement.pb.h"
#include "proto/parameter_server.pb.h"
#include "proto/ring.pb.h"
#include "tests/security/secure_cluster.h"

namespace evenshard {
namespace {

using google::protobuf::FileDescriptorProto;
using google::protobuf::UnknownField;
using google::protobuf::UnknownFieldSet;

constexpr char kReflection[] = "/grpc.reflection.v1alpha.ServerReflection/ServerReflectionInfo";

std::vector<std::string> Fields(const std::string& message, int number) {
  UnknownFieldSet set;
  REQUIRE(set.ParseFromString(message));
  std::vector<std::string> values;
  for (int i = 0; i < set.field_count(); ++i) {
    const UnknownField& field = set.field(i);
    if (field.number() == number && field.type() == UnknownField::TYPE_LENGTH_DELIMITED) {
      values.push_back(field.length_delimited());
    }
  }
  return values;
}

std::string Field(int number, const std::string& value) {
  UnknownFieldSet set;
  set.AddLengthDelimited(number, value);
  std::string bytes;
  REQUIRE(set.SerializeToString(&bytes));
  return bytes;
}

// By reflection: the full names of all methods, "/evenshard.v1.Admin/GetStats".
std::set<std::string> MethodsOf(const std::shared_ptr<grpc::Channel>& channel) {
  constexpr int kListServices = 7, kServices = 6, kService = 1, kName = 1;
  constexpr int kFileOfSymbol = 4, kFiles = 4, kFile = 1;
  std::set<std::string> methods;
  const Answer list = CallAny(channel, kReflection, Field(kListServices, "*"));
  REQUIRE(!list.bytes.empty());
  for (const std::string& service : Fields(Fields(list.bytes, kServices).at(0), kService)) {
    const std::string name = Fields(service, kName).at(0);
    const Answer answer = CallAny(channel, kReflection, Field(kFileOfSymbol, name));
    const std::vector<std::string> files = Fields(answer.bytes, kFiles);
    if (files.empty()) {  // gRPC's own service of health has no descriptor
      REQUIRE(name == "grpc.health.v1.Health");
      methods.insert({"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"});
      continue;
    }
    for (const std::string& bytes : Fields(files[0], kFile)) {
      FileDescriptorProto file;
      REQUIRE(file.ParseFromString(bytes));
      for (const auto& each : file.service()) {
        if (absl::StrCat(file.package(), ".", each.name()) != name) continue;
        for (const auto& method : each.method()) {
          methods.insert(absl::StrCat("/", name, "/", method.name()));
        }
      }
    }
  }
  return methods;
}

// The methods that workers of a ring offer.
std::set<std::string> RingMethods() {
  const auto* const ring = RingStats::descriptor()->file()->FindServiceByName("Ring");
  std::set<std::string> methods;
  for (int i = 0; i < ring->method_count(); ++i) {
    methods.insert(absl::StrCat("/", ring->full_name(), "/", ring->method(i)->name()));
  }
  return methods;
}

// A shard with norms to agree on, which offers more services than others.
std::vector<std::string> Agreeing() {
  return {"update.clip_global_norm=1", "shard=[{address: '127.0.0.1:0'}]"};
}

TEST_CASE("each method has a row, and each row a method") {
  SecureCluster secure(Agreeing());
  std::set<std::string> offered = MethodsOf(
      secure.Channel(secure.Caller("operator", {.names = {"URI:evenshard://run/operator"}})));
  offered.merge(RingMethods());
  CHECK(offered.contains("/evenshard.v1.ParameterServer/Exchange"));
  CHECK(offered.contains("/evenshard.v1.Agreement/Agree"));
  CHECK(offered.contains("/evenshard.v1.Ring/Join"));
  CHECK(offered.contains("/grpc.health.v1.Health/Watch"));
  CHECK(offered.contains(kReflection));
  const auto has_row = [](absl::string_view method) {
    return absl::c_any_of(AllRights(), [&](const auto& row) { return row.method == method; });
  };
  for (const std::string& method : offered) {
    INFO(method);
    CHECK(has_row(method));
  }
  for (const MethodRights& row : AllRights()) {
    INFO(std::string(row.method));
    // Offered with other configs only.
    const bool elsewhere = absl::StartsWith(row.method, "/evenshard.v1.Replication/");
    CHECK((elsewhere || offered.contains(std::string(row.method))));
    CHECK(!row.roles.empty());
  }
}

TEST_CASE("each kind of caller may call what the table says, and nothing else") {
  SecureCluster secure(Agreeing());
  std::set<std::string> methods = {"/evenshard.v1.Replication/Replicate",
                                   "/evenshard.v1.Admin/Unknown"};
  methods.merge(RingMethods());
  methods.merge(MethodsOf(
      secure.Channel(secure.Caller("first", {.names = {"URI:evenshard://run/operator"}}))));
  const std::map<std::string, std::vector<Role>> callers = {
      {"evenshard://run/worker/0", {Role::kWorker}},
      {"evenshard://run/shard/0", {Role::kShard}},
      {"evenshard://run/operator", {Role::kOperator}},
      {"evenshard://run/reader", {Role::kReader}},
      {"evenshard://run2/operator", {}},
      {"evenshard://other/worker/0", {}},
      {"evenshard://run/nothing", {}},
      {"https://example.org/operator", {}},
  };
  int cells = 0;
  for (const auto& [uri, roles] : callers) {
    const auto channel =
        secure.Channel(secure.Caller(absl::StrCat("caller", cells), {.names = {"URI:" + uri}}));
    for (const std::string& method : methods) {
      bool may = false;
      for (const MethodRights& row : AllRights()) {
        for (const Role role : row.roles) {
          may |= row.method == method && absl::c_linear_search(roles, role);
        }
      }
      // What is no method of this server gives away nothing either.
      const Answer answer = CallAny(channel, method, "");
      INFO(uri << " " << method << ": " << answer.status.error_code() << " "
               << answer.status.error_message());
      const bool is_refused = answer.status.error_code() == grpc::StatusCode::PERMISSION_DENIED &&
                              answer.status.error_message() == kRefused;
      CHECK(is_refused == !may);
      ++cells;
    }
  }
  CHECK(cells > 150);
}

TEST_CASE("without a certificate of the authority there is no call at all") {
  SecureCluster secure;
  const TestAuthority stranger(secure.folder(), "stranger");
  const std::vector<std::string> names = {"URI:evenshard://run/operator"};
  Security expired = secure.Caller("expired", {.names = names, .ends = -60});
  Security early = secure.Caller("early", {.names = names, .begins = 600});
  Security strange = secure.Caller(stranger, "strange", {.names = names});
  for (const Security& caller : {expired, early, strange}) {
    const Answer answer = CallAny(secure.Channel(caller), "/evenshard.v1.Admin/GetView", "");
    INFO(caller.certificate() << ": " << answer.status.error_message());
    CHECK(answer.status.error_code() == grpc::StatusCode::UNAVAILABLE);
  }
  // Plaintext to a port that wants TLS, and TLS without a certificate.
  const auto plain = grpc::CreateChannel(secure.address(), grpc::InsecureChannelCredentials());
  CHECK(CallAny(plain, "/evenshard.v1.Admin/GetView", "").status.error_code() ==
        grpc::StatusCode::UNAVAILABLE);
  grpc::SslCredentialsOptions options;
  options.pem_root_certs = secure.folder().Read("authority.pem");
  const auto bare = grpc::CreateChannel(secure.address(), grpc::SslCredentials(options));
  CHECK(CallAny(bare, "/evenshard.v1.Admin/GetView", "").status.error_code() ==
        grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("nobody speaks for another worker, or as one that has joined") {
  SecureCluster secure;
  TestCluster& cluster = secure.cluster();
  const auto zero =
      secure.Channel(secure.Caller("zero", {.names = {"URI:evenshard://run/worker/0"}}));
  const auto one =
      secure.Channel(secure.Caller("one", {.names = {"URI:evenshard://run/worker/1"}}));
  constexpr uint64_t kIncarnation = 77;
  const std::string join = cluster.RequestToJoin(0, kIncarnation).SerializeAsString();
  const auto is_refused = [](const Answer& answer) {
    INFO(answer.status.error_code() << " " << answer.status.error_message());
    return answer.status.error_code() == grpc::StatusCode::PERMISSION_DENIED;
  };
  constexpr char kJoin[] = "/evenshard.v1.ParameterServer/Join";
  CHECK(is_refused(CallAny(one, kJoin, join)));
  // Numbers that are negative as an int.
  for (const uint32_t nobody : {0xFFFFFFFFu, 0x80000001u}) {
    JoinRequest too_large = cluster.RequestToJoin(0, kIncarnation);
    too_large.set_worker(nobody);
    CHECK(is_refused(CallAny(one, kJoin, too_large.SerializeAsString())));
  }
  CHECK(CallAny(zero, kJoin, join).status.error_code() != grpc::StatusCode::PERMISSION_DENIED);
  // With worker 0's incarnation too, which worker 1 might have seen.
  ReportRequest request;  // `worker` and `incarnation` are the same fields in all of them
  request.set_worker(0);
  request.set_incarnation(kIncarnation);
  for (const std::string method : {"Leave", "Report", "Mean", "KeepState", "TakeState",
                                   "AskWorkerState", "OfferWorkerState", "ReceiveWorkerState"}) {
    INFO(method);
    const std::string full = "/evenshard.v1.ParameterServer/" + method;
    CHECK(is_refused(CallAny(one, full, request.SerializeAsString())));
    CHECK(!is_refused(CallAny(zero, full, request.SerializeAsString())));
  }
  // A Pull that names a worker has it noted what this worker computes from.
  PullRequest pull;
  pull.set_worker(0);
  constexpr char kPull[] = "/evenshard.v1.ParameterServer/Pull";
  CHECK(is_refused(CallAny(one, kPull, pull.SerializeAsString())));
  CHECK(!is_refused(CallAny(zero, kPull, pull.SerializeAsString())));
  CHECK(!is_refused(CallAny(one, kPull, PullRequest().SerializeAsString())));
  const std::vector<std::pair<std::string, std::string>> as_zero = {
      {kWorkerMetadata, "0"}, {kIncarnationMetadata, "77"}, {kTicketMetadata, "1"}};
  for (const std::string method : {"Exchange", "SendWorkerState"}) {
    INFO(method);
    const std::string full = "/evenshard.v1.ParameterServer/" + method;
    CHECK(is_refused(CallAny(one, full, "", as_zero)));
    CHECK(!is_refused(CallAny(zero, full, "", as_zero)));
  }
}

TEST_CASE("what a slot reports is taken from its primary only") {
  SecureCluster secure(Agreeing());
  const auto zero =
      secure.Channel(secure.Caller("zero", {.names = {"URI:evenshard://run/shard/0"}}));
  const auto others =
      secure.Channel(secure.Caller("others", {.names = {"URI:evenshard://run/shard/1-9"}}));
  const auto code = [&](const std::shared_ptr<grpc::Channel>& channel,
                        const AgreementReport& report) {
    return CallAny(channel, "/evenshard.v1.Agreement/Agree", report.SerializeAsString())
        .status.error_code();
  };
  AgreementReport report;
  report.set_config_fingerprint(secure.cluster().config().fingerprint());
  report.set_number(1);
  CHECK(code(others, report) == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(code(zero, report) != grpc::StatusCode::PERMISSION_DENIED);
  // Numbers of no slot, and such as are negative as an int.
  for (const uint32_t nobodys : {77u, 0x80000000u, 0xFFFFFFFFu}) {
    report.set_slot(nobodys);
    CHECK(code(zero, report) == grpc::StatusCode::PERMISSION_DENIED);
    CHECK(code(others, report) == grpc::StatusCode::PERMISSION_DENIED);
  }
  report.set_slot(1);
  CHECK(code(others, report) == grpc::StatusCode::INVALID_ARGUMENT);  // there is one slot
  report.set_slot(0);
  report.set_view(1);
  CHECK(code(others, report) == grpc::StatusCode::UNAVAILABLE);
}

TEST_CASE("what a replica takes is from its slot's primary only") {
  SecureCluster secure({"recovery={replicas: 1}"});
  const auto code = [&](const std::string& processes, const std::string& slot,
                        const std::string& view) {
    const auto channel = secure.Channel(
        secure.Caller("shard" + processes, {.names = {"URI:evenshard://run/shard/" + processes}}));
    return CallAny(channel, "/evenshard.v1.Replication/Replicate", "",
                   {{kSlotMetadata, slot}, {kViewMetadata, view}, {kIncarnationMetadata, "1"}})
        .status.error_code();
  };
  CHECK(code("1-9", "0", "0") == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(code("0", "77", "0") == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(code("0", "4294967295", "0") == grpc::StatusCode::PERMISSION_DENIED);
  CHECK(code("0", "0", "0") == grpc::StatusCode::UNAVAILABLE);  // there is no replica here
  CHECK(code("0", "0", "1") == grpc::StatusCode::UNAVAILABLE);
}

}  // namespace
}  // namespace evenshard
