#include "common/control/etcd/etcd_client.h"

#include <fstream>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/time/clock.h"
#include "common/base/status_macros.h"
#include "common/net/status_conversion.h"
#include "common/security/credentials.h"
#include "grpcpp/client_context.h"
#include "grpcpp/create_channel.h"
#include "grpcpp/security/credentials.h"
#include "grpcpp/support/channel_arguments.h"
#include "grpcpp/support/client_callback.h"
#include "proto/etcd/rpc.grpc.pb.h"

namespace evenshard {
namespace {

using etcdserverpb::WatchRequest;
using etcdserverpb::WatchResponse;

constexpr char kTokenMetadata[] = "token";

// All keys of a run in one answer. etcd takes 1.5 MiB in one request.
constexpr int kMaxMessageBytes = 64 * 1024 * 1024;

grpc::ChannelArguments Arguments() {
  grpc::ChannelArguments arguments;
  arguments.SetMaxReceiveMessageSize(kMaxMessageBytes);
  // Channels to the same address would otherwise share a connection, and one that hangs would hang
  // for all.
  arguments.SetInt(GRPC_ARG_USE_LOCAL_SUBCHANNEL_POOL, 1);
  // The client itself tries again.
  arguments.SetInt(GRPC_ARG_ENABLE_RETRIES, 0);
  // The traffic of a cluster must not go where an http_proxy variable points.
  arguments.SetInt(GRPC_ARG_ENABLE_HTTP_PROXY, 0);
  // An endpoint that is back is found quickly.
  arguments.SetInt(GRPC_ARG_INITIAL_RECONNECT_BACKOFF_MS, 100);
  // Despite its name, this is the timeout of an attempt to connect.
  arguments.SetInt(GRPC_ARG_MIN_RECONNECT_BACKOFF_MS, 2000);
  arguments.SetInt(GRPC_ARG_MAX_RECONNECT_BACKOFF_MS, 1000);
  return arguments;
}

// The context of a blocking call, which ends after `timeout` and once `stop` is requested. gRPC
// measures the timeout by the monotonic clock from here on. The call waits for the connection,
// because a connection is made only while some call waits for it.
struct CallContext {
  CallContext(const std::stop_token& stop, absl::Duration timeout)
      : on_stop(stop, [this] { context.TryCancel(); }) {
    context.set_deadline(absl::ToChronoTime(absl::Now() + timeout));
    context.set_wait_for_ready(true);
  }

  grpc::ClientContext context;
  const std::stop_callback<std::function<void()>> on_stop;
};

// Whether another endpoint may answer where this one failed, since the failure says nothing about
// the request.
bool MayDifferElsewhere(const grpc::Status& status) {
  switch (status.error_code()) {
    case grpc::StatusCode::CANCELLED:
    case grpc::StatusCode::DEADLINE_EXCEEDED:
    case grpc::StatusCode::INTERNAL:
    case grpc::StatusCode::RESOURCE_EXHAUSTED:
    case grpc::StatusCode::UNAUTHENTICATED:  // a token has ended: the next try has another one
    case grpc::StatusCode::UNAVAILABLE:
    case grpc::StatusCode::UNKNOWN:
      return true;
    // What a member says, from etcd 3.6 on, that has just started or has no vote yet.
    case grpc::StatusCode::FAILED_PRECONDITION:
      return absl::StrContains(status.error_message(), "not capable") ||
             absl::StrContains(status.error_message(), "not supported for learner");
    default:
      return false;
  }
}

}  // namespace

struct EtcdClient::Endpoint {
  Endpoint(const std::string& address, const std::shared_ptr<grpc::ChannelCredentials>& credentials)
      : address(address),
        channel(grpc::CreateCustomChannel(address, credentials, Arguments())),
        auth(etcdserverpb::Auth::NewStub(channel)),
        kv(etcdserverpb::KV::NewStub(channel)),
        lease(etcdserverpb::Lease::NewStub(channel)),
        watch(etcdserverpb::Watch::NewStub(channel)) {}

  const std::string address;
  const std::shared_ptr<grpc::Channel> channel;
  const std::unique_ptr<etcdserverpb::Auth::Stub> auth;
  const std::unique_ptr<etcdserverpb::KV::Stub> kv;
  const std::unique_ptr<etcdserverpb::Lease::Stub> lease;
  const std::unique_ptr<etcdserverpb::Watch::Stub> watch;
};

// Reads the next response only when the one before has been taken, so that an etcd that sends fast
// fills no memory. While the call is open, a hold lets operations begin outside gRPC's calls.
class EtcdClient::WatchStream final : public EtcdWatchStream,
                                      private grpc::ClientBidiReactor<WatchRequest, WatchResponse> {
 public:
  WatchStream(EtcdClient* client, size_t index, const etcdserverpb::WatchCreateRequest& request,
              std::function<void()> on_news)
      : client_(*client), index_(index), on_news_(std::move(on_news)) {
    // An endpoint without a leader would otherwise go on without anything to tell.
    context_.AddMetadata("hasleader", "true");
    if (const std::string token = client->token(); !token.empty()) {
      context_.AddMetadata(kTokenMetadata, token);
    }
    context_.set_wait_for_ready(true);
    *request_.mutable_create_request() = request;
    endpoint().watch->async()->Watch(&context_, this);
    AddHold();
    StartWrite(&request_);
    StartRead(&response_);
    StartCall();
  }

  ~WatchStream() override {
    context_.TryCancel();
    bool reading;
    {
      absl::MutexLock lock(&mutex_);
      reading = !has_response_;
      closed_ = true;
    }
    if (!reading) RemoveHold();
    absl::MutexLock lock(&mutex_);
    mutex_.Await(absl::Condition(&done_));
  }

  absl::StatusOr<std::optional<WatchResponse>> Next() override {
    absl::ReleasableMutexLock lock(&mutex_);
    if (!has_response_) {
      if (!done_) return std::nullopt;
      lock.Release();
      return GiveUp(status_.ok() ? "it ended the watch" : status_.message());
    }
    has_response_ = false;
    WatchResponse response = std::move(response_);
    response_.Clear();
    StartRead(&response_);
    return response;
  }

  void RequestProgress() override {
    absl::MutexLock lock(&mutex_);
    if (writes_ || closed_) return;
    writes_ = true;
    request_.mutable_progress_request();
    StartWrite(&request_);
  }

  absl::Status GiveUp(absl::string_view why) override {
    client_.Avoid(index_);
    return absl::UnavailableError(
        absl::StrCat("the watch at etcd ", endpoint().address, ": ", why));
  }

 private:
  const Endpoint& endpoint() const { return *client_.endpoints_[index_]; }

  void OnWriteDone(bool ok) override {
    absl::MutexLock lock(&mutex_);
    writes_ = false;
  }

  void OnReadDone(bool ok) override {
    bool takes_it;
    {
      absl::MutexLock lock(&mutex_);
      takes_it = has_response_ = ok && !closed_;
      if (!ok) closed_ = true;
    }
    if (takes_it) {
      on_news_();
    } else {
      RemoveHold();
    }
  }

  void OnDone(const grpc::Status& status) override {
    // The destructor may run as soon as the lock is released.
    absl::MutexLock lock(&mutex_);
    status_ = FromGrpc(status);
    done_ = true;
    on_news_();
  }

  // Constant after construction.
  EtcdClient& client_;
  const size_t index_;
  const std::function<void()> on_news_;
  grpc::ClientContext context_;

  // gRPC's while a write or read is under way.
  WatchRequest request_;
  WatchResponse response_;

  absl::Mutex mutex_;
  bool writes_ ABSL_GUARDED_BY(mutex_) = true;
  bool has_response_ ABSL_GUARDED_BY(mutex_) = false;  // nothing is being read
  bool closed_ ABSL_GUARDED_BY(mutex_) = false;        // there will be no further response
  bool done_ ABSL_GUARDED_BY(mutex_) = false;
  absl::Status status_;  // constant once done_
};

EtcdClient::EtcdClient(const Options& options)
    : timeout_(options.timeout), access_(options.access) {
  const std::shared_ptr<grpc::ChannelCredentials> credentials =
      access_.has_authority()
          ? ServiceCredentials(access_.authority(), access_.certificate(), access_.key())
          : grpc::InsecureChannelCredentials();
  for (const std::string& address : options.endpoints) {
    endpoints_.push_back(std::make_unique<Endpoint>(address, credentials));
  }
}

EtcdClient::~EtcdClient() = default;

std::string EtcdClient::token() const {
  absl::MutexLock lock(&mutex_);
  return token_;
}

grpc::Status EtcdClient::Authenticate(const Endpoint& endpoint,
                                      std::chrono::system_clock::time_point deadline) {
  std::ifstream file(access_.password_file(), std::ios::binary);
  etcdserverpb::AuthenticateRequest request;
  request.set_name(access_.user());
  if (!std::getline(file, *request.mutable_password())) {
    return {grpc::StatusCode::UNAUTHENTICATED,
            absl::StrCat("cannot read a password from recovery.etcd.password_file (\"",
                         access_.password_file(), "\"), allowed: a line of text")};
  }
  grpc::ClientContext context;
  context.set_deadline(deadline);
  context.set_wait_for_ready(true);
  etcdserverpb::AuthenticateResponse response;
  const grpc::Status status = endpoint.auth->Authenticate(&context, request, &response);
  absl::MutexLock lock(&mutex_);
  token_ = response.token();
  return status;
}

template <typename Call>
grpc::Status EtcdClient::CallOnce(const Endpoint& endpoint, grpc::ClientContext* context,
                                  const Call& call) {
  if (!access_.has_user()) return call(endpoint, context);
  if (token().empty()) {
    const grpc::Status known = Authenticate(endpoint, context->deadline());
    if (!known.ok()) return known;
  }
  context->AddMetadata(kTokenMetadata, token());
  grpc::Status status = call(endpoint, context);
  // A token that is older than a change of etcd's users or roles is refused as an argument.
  if (status.error_code() == grpc::StatusCode::INVALID_ARGUMENT &&
      absl::StrContains(status.error_message(), "revision of auth store is old")) {
    status = grpc::Status(grpc::StatusCode::UNAUTHENTICATED, status.error_message());
  }
  if (status.error_code() == grpc::StatusCode::UNAUTHENTICATED) {
    absl::MutexLock lock(&mutex_);
    token_.clear();
  }
  return status;
}

template <typename Call>
absl::Status EtcdClient::Try(absl::string_view what, const std::stop_token& stop,
                             const Call& call) {
  std::vector<std::string> tried;
  const size_t first = preferred_;
  for (size_t i = 0; i < endpoints_.size(); ++i) {
    const size_t index = (first + i) % endpoints_.size();
    const Endpoint& endpoint = *endpoints_[index];
    CallContext context(stop, timeout_);
    const grpc::Status status = CallOnce(endpoint, &context.context, call);
    if (status.ok()) {
      preferred_ = index;
      return absl::OkStatus();
    }
    if (stop.stop_requested()) return absl::CancelledError("told to stop");
    const absl::Status failure = FromGrpc(status);
    if (!MayDifferElsewhere(status)) {
      return absl::Status(failure.code(), absl::StrCat("etcd ", endpoint.address, " cannot ", what,
                                                       ": ", failure.message()));
    }
    std::string problem(failure.message());
    if (status.error_code() == grpc::StatusCode::DEADLINE_EXCEEDED) {
      const bool is_connected = endpoint.channel->GetState(false) == GRPC_CHANNEL_READY;
      problem = absl::StrCat(is_connected ? "no answer within " : "no connection within ",
                             absl::FormatDuration(timeout_));
    }
    tried.push_back(absl::StrCat(endpoint.address, " (", problem, ")"));
  }
  return absl::UnavailableError(
      absl::StrCat("etcd cannot ", what, "; tried ", absl::StrJoin(tried, ", ")));
}

void EtcdClient::Avoid(size_t index) {
  preferred_.compare_exchange_strong(index, (index + 1) % endpoints_.size());
}

absl::StatusOr<etcdserverpb::RangeResponse> EtcdClient::Range(
    const etcdserverpb::RangeRequest& request, const std::stop_token& stop) {
  etcdserverpb::RangeResponse response;
  RETURN_IF_ERROR(Try(absl::StrCat("read ", request.key()), stop,
                      [&](const Endpoint& endpoint, grpc::ClientContext* context) {
                        return endpoint.kv->Range(context, request, &response);
                      }));
  return response;
}

absl::StatusOr<etcdserverpb::TxnResponse> EtcdClient::Txn(const etcdserverpb::TxnRequest& request,
                                                          const std::stop_token& stop) {
  const std::string key = request.compare().empty() ? "" : request.compare(0).key();
  etcdserverpb::TxnResponse response;
  RETURN_IF_ERROR(Try(absl::StrCat("compare and change ", key), stop,
                      [&](const Endpoint& endpoint, grpc::ClientContext* context) {
                        return endpoint.kv->Txn(context, request, &response);
                      }));
  return response;
}

absl::StatusOr<etcdserverpb::LeaseGrantResponse> EtcdClient::Grant(absl::Duration ttl,
                                                                   const std::stop_token& stop) {
  etcdserverpb::LeaseGrantRequest request;
  request.set_ttl(absl::ToInt64Seconds(absl::Ceil(ttl, absl::Seconds(1))));
  etcdserverpb::LeaseGrantResponse response;
  RETURN_IF_ERROR(
      Try("grant a lease", stop, [&](const Endpoint& endpoint, grpc::ClientContext* context) {
        return endpoint.lease->LeaseGrant(context, request, &response);
      }));
  if (!response.error().empty()) {
    return absl::InternalError(absl::StrCat("etcd cannot grant a lease: ", response.error()));
  }
  return response;
}

absl::Status EtcdClient::KeepAlive(int64_t lease, const std::stop_token& stop) {
  etcdserverpb::LeaseKeepAliveRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseKeepAliveResponse response;
  RETURN_IF_ERROR(
      Try("renew a lease", stop, [&](const Endpoint& endpoint, grpc::ClientContext* context) {
        const auto stream = endpoint.lease->LeaseKeepAlive(context);
        const bool answered = stream->Write(request) && stream->Read(&response);
        if (!answered) {
          stream->WritesDone();
          const grpc::Status status = stream->Finish();
          return status.ok() ? grpc::Status(grpc::StatusCode::UNAVAILABLE,
                                            "it ended the call without an answer")
                             : status;
        }
        // The call is for one renewal, so that each may go to another endpoint.
        context->TryCancel();
        stream->Finish();
        return grpc::Status::OK;
      }));
  if (response.ttl() <= 0) return absl::NotFoundError("the lease has ended");
  return absl::OkStatus();
}

absl::Status EtcdClient::Revoke(int64_t lease, const std::stop_token& stop) {
  etcdserverpb::LeaseRevokeRequest request;
  request.set_id(lease);
  etcdserverpb::LeaseRevokeResponse response;
  const absl::Status status =
      Try("end a lease", stop, [&](const Endpoint& endpoint, grpc::ClientContext* context) {
        return endpoint.lease->LeaseRevoke(context, request, &response);
      });
  return absl::IsNotFound(status) ? absl::OkStatus() : status;
}

std::unique_ptr<EtcdWatchStream> EtcdClient::Watch(const etcdserverpb::WatchCreateRequest& request,
                                                   std::function<void()> on_news) {
  return std::make_unique<WatchStream>(this, preferred_, request, std::move(on_news));
}

}  // namespace evenshard
