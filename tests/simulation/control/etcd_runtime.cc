#include "tests/simulation/control/etcd_runtime.h"

#include <algorithm>
#include <deque>
#include <optional>
#include <utility>
#include <variant>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "tests/simulation/machines/sim_etcd.h"

namespace evenshard {
namespace {

// Shorter than all that the clocks' rates can make of a pause.
constexpr absl::Duration kShortest = absl::Microseconds(100);

// Runs a machine in events of its process, as a thread would: woken a little later.
class SimRunner final : public EtcdRunner {
 public:
  SimRunner(SimEtcdRuntime* runtime, EtcdMachine* machine)
      : shared_(std::make_shared<Shared>(runtime, machine)) {}
  ~SimRunner() override { SimRunner::Stop(); }

  void Start() override { Wake(); }
  void Stop() override { shared_->stopped = true; }
  void Wake() override {
    if (!shared_->asking) Schedule(shared_, kShortest * shared_->runtime.world().dice().Int(0, 5));
  }

 private:
  struct Shared {
    Shared(SimEtcdRuntime* runtime, EtcdMachine* machine) : runtime(*runtime), machine(*machine) {}
    SimEtcdRuntime& runtime;
    EtcdMachine& machine;
    bool stopped = false;
    bool asking = false;                      // a request is under way
    absl::Time due = absl::InfiniteFuture();  // when the machine's turn comes, in the world's time
  };

  static void Schedule(const std::shared_ptr<Shared>& shared, absl::Duration delay) {
    World& world = shared->runtime.world();
    const absl::Time due = world.loop().Now() + delay;
    if (due >= shared->due) return;
    shared->due = due;
    world.Run(shared->runtime.node(), delay, [shared, due] {
      if (shared->due == due) Step(shared);
    });
  }

  static void Step(const std::shared_ptr<Shared>& shared) {
    shared->due = absl::InfiniteFuture();
    if (shared->stopped || shared->asking) return;
    const absl::Time now = shared->runtime.clock().Now();
    EtcdMachine::Step step = shared->machine.Next(now);
    if (shared->stopped) return;
    if (const auto* until = std::get_if<absl::Time>(&step)) {
      if (*until != absl::InfiniteFuture()) Schedule(shared, std::max(*until - now, kShortest));
      return;
    }
    shared->asking = true;
    shared->runtime.Call(std::get<EtcdRequest>(step), [shared](const EtcdAnswer& answer) {
      if (shared->stopped) return;
      shared->asking = false;
      shared->machine.Answered(answer, shared->runtime.clock().Now());
      if (!shared->stopped) Schedule(shared, absl::ZeroDuration());
    });
  }

  const std::shared_ptr<Shared> shared_;
};

// A watch over a connection of its own. Its side 1 is etcd's.
class SimWatchStream final : public EtcdWatchStream {
 public:
  SimWatchStream(SimEtcd* etcd, std::shared_ptr<Connection> connection,
                 const etcdserverpb::WatchCreateRequest& request, std::function<void()> on_news)
      : shared_(std::make_shared<Shared>()), etcd_(*etcd), connection_(std::move(connection)) {
    shared_->on_news = std::move(on_news);
    connection_->OnBroken(0, [shared = shared_](const absl::Status& status) {
      shared->ended = status;
      if (shared->on_news) shared->on_news();
    });
    connection_->Send(0, [shared = shared_, etcd, connection = connection_, request] {
      connection->OnBroken(1, [shared, etcd](const absl::Status&) { etcd->Cancel(shared->watch); });
      shared->watch =
          etcd->Watch(request, [shared, connection](const etcdserverpb::WatchResponse& response) {
            connection->Send(1, [shared, response] {
              shared->responses.push_back(response);
              if (shared->on_news) shared->on_news();
            });
          });
    });
  }
  ~SimWatchStream() override {
    shared_->on_news = nullptr;
    connection_->Close(0, absl::CancelledError("the watch is over"));
  }

  absl::StatusOr<std::optional<etcdserverpb::WatchResponse>> Next() override {
    if (shared_->responses.empty()) {
      if (!shared_->ended.ok()) return GiveUp(shared_->ended.message());
      return std::nullopt;
    }
    etcdserverpb::WatchResponse response = std::move(shared_->responses.front());
    shared_->responses.pop_front();
    return response;
  }
  void RequestProgress() override {
    connection_->Send(0,
                      [shared = shared_, &etcd = etcd_] { etcd.RequestProgress(shared->watch); });
  }
  absl::Status GiveUp(absl::string_view why) override {
    return absl::UnavailableError(absl::StrCat("the watch at etcd: ", why));
  }

 private:
  struct Shared {
    std::function<void()> on_news;
    std::deque<etcdserverpb::WatchResponse> responses;
    absl::Status ended;
    SimEtcd::WatchId watch = 0;  // etcd's
  };

  const std::shared_ptr<Shared> shared_;
  SimEtcd& etcd_;
  const std::shared_ptr<Connection> connection_;
};

}  // namespace

std::unique_ptr<EtcdRunner> SimEtcdRuntime::MakeRunner(EtcdMachine* machine) {
  return std::make_unique<SimRunner>(this, machine);
}

std::shared_ptr<Connection> SimEtcdRuntime::Connect() const {
  return context_.world.Connect(node_, context_.world.Ref(context_.NodeOfCoordinator()));
}

std::unique_ptr<EtcdWatchStream> SimEtcdRuntime::Watch(
    const etcdserverpb::WatchCreateRequest& request, std::function<void()> on_news) {
  return std::make_unique<SimWatchStream>(&context_.etcd, Connect(), request, std::move(on_news));
}

absl::Status SimEtcdRuntime::Revoke(int64_t lease) {
  Connect()->Send(0, [etcd = &context_.etcd, lease] { etcd->Revoke(lease); });
  return absl::OkStatus();
}

EtcdRequest SimEtcdRuntime::Tampered(EtcdRequest request) const {
  auto* const change = std::get_if<etcdserverpb::TxnRequest>(&request);
  if (change == nullptr || context_.plant != Plant::kPublishesUnfenced) return request;
  const std::string& key = change->success(0).request_put().key();
  if (absl::StrContains(key, "/view")) change->clear_compare();
  return request;
}

void SimEtcdRuntime::Call(const EtcdRequest& request, std::function<void(const EtcdAnswer&)> done) {
  const std::shared_ptr<Connection> connection = Connect();
  // Whatever comes first: the answer, the end of the connection, or the timeout.
  const auto end = [connection, done = std::move(done),
                    is_over = std::make_shared<bool>(false)](const EtcdAnswer& answer) {
    if (std::exchange(*is_over, true)) return;
    connection->Close(0, absl::CancelledError("the call is over"));
    done(answer);
  };
  connection->OnBroken(
      0, [end](const absl::Status& status) { end(absl::UnavailableError(status.message())); });
  world().Run(node_, timeout(), [end] { end(absl::UnavailableError("no answer")); });
  connection->Send(
      0, [connection, end, context = &context_, node = node_, request = Tampered(request)] {
        const Clock& clock = context->world.clock(context->NodeOfCoordinator());
        connection->Send(
            1, [end, answer = context->etcd.Answer(request, node, clock.Now())] { end(answer); });
      });
}

}  // namespace evenshard
