#include "tests/simulation/control/etcd_host.h"

#include <algorithm>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/control/etcd/etcd_lease.h"
#include "common/control/etcd/etcd_link.h"
#include "proto/etcd/verdict.pb.h"
#include "tests/simulation/control/etcd_runtime.h"
#include "tests/simulation/ps_process.h"

namespace evenshard {
namespace {

constexpr absl::Duration kTick = absl::Milliseconds(100);
// In how many ticks etcd is compacted once, and loses all connections once.
constexpr int kCompaction = 50;
constexpr int kBreak = 200;

}  // namespace

EtcdHost::EtcdHost(Options options)
    : Coordinator(std::move(options)), keys_(context_.config.proto().recovery().etcd().run()) {
  seen_ = context_.world.loop().Now();
  silence_ = EtcdLease::TtlOf(context_.config.proto().recovery());
  SimEtcd& etcd = context_.etcd;
  etcd.on_put = [this](const std::string& key, std::string* value) {
    if (context_.plant == Plant::kNone) return;
    if (key == keys_.view()) {
      View view;
      view.ParseFromString(*value);
      Tamper(&view);
      *value = view.SerializeAsString();
    } else if (absl::StartsWith(key, keys_.processes())) {
      ProcessState state;
      state.ParseFromString(*value);
      Tamper(&state);
      *value = state.SerializeAsString();
    }
  };
  etcd.on_loss = [this](const std::string& key, NodeRef holder) { Lost(key, holder); };
  etcd.Restart(Now());
  if (etcd.Find(keys_.end()) != nullptr) {
    etcd.Clear();
    context_.oracle.RunStarted();
  }
  resumes_ = etcd.Find(keys_.view()) == nullptr && context_.oracle.NewestCheckpoint().has_value();
  context_.world.Run(options_.node, absl::ZeroDuration(), [this] { Tick(); });
}

std::unique_ptr<ViewLink> EtcdHost::MakeLink(NodeRef node) {
  return std::make_unique<EtcdLink>(EtcdLink::OptionsOf(
      context_.config.proto(), std::make_shared<SimEtcdRuntime>(&context_, node)));
}

void EtcdHost::CandidateFailed(const absl::Status& failure) {
  context_.world.Log(absl::StrCat("a candidate fails: ", failure.message()));
  // Otherwise the process is started again, and it may be better then.
  if (!absl::IsInvalidArgument(failure) || std::exchange(resumes_, false)) return;
  failure_.Update(failure);
}

std::optional<NodeRef> EtcdHost::Elected() const {
  const std::optional<NodeRef> holder = context_.etcd.HolderOf(keys_.coordinator());
  return holder.has_value() && context_.world.IsRunning(*holder) ? holder : std::nullopt;
}

void EtcdHost::StandStill(absl::Time until) {
  World& world = context_.world;
  if (const std::optional<NodeRef> elected = Elected();
      elected.has_value() && world.dice().Once(2)) {
    world.Pause(elected->node, until);
    return;
  }
  // Everything may be killed before, this too.
  world.loop().At(until, [&context = context_, node = options_.node] {
    World& world = context.world;
    if (world.IsRunning(node)) context.etcd.ChangeLeader(world.clock(node.node).Now());
  });
  world.Pause(options_.node.node, until);
}

bool EtcdHost::may_lock_folder() const {
  const std::optional<NodeRef> elected = Elected();
  const World& world = context_.world;
  return elected.has_value() && world.DisturbedUntil(elected->node) < world.loop().Now() &&
         world.DisturbedUntil(options_.node.node) < world.loop().Now();
}

void EtcdHost::Lost(const std::string& key, NodeRef holder) {
  World& world = context_.world;
  if (!absl::StartsWith(key, keys_.processes())) return;
  world.Log(absl::StrCat("the lease of ", world.name(holder.node), " has run out"));
  ++lost_leases_;
  if (!world.IsRunning(holder)) return;
  context_.watch.CountsAsSilent(holder.node);
  const bool is_ps = holder.node < context_.scenario.processes();
  if (!is_ps || !context_.ps(holder.node)->HoldsRoles()) return;
  context_.oracle.Violated(
      absl::StrCat(world.name(holder.node), " acts in its roles, and its lease has run out"));
}

void EtcdHost::LookForCoordinator() {
  const absl::Time now = context_.world.loop().Now();
  if (Elected().has_value()) {
    seen_ = now;
    const int64_t term = context_.etcd.Find(keys_.coordinator())->create_revision();
    was_replaced_ |= term_ != 0 && term_ != term;
    term_ = term;
  }
  longest_absence_ = std::max(longest_absence_, now - seen_);
}

void EtcdHost::Tick() {
  World& world = context_.world;
  LookForCoordinator();
  context_.etcd.EndLeases(Now());
  if (world.dice().Once(kCompaction)) context_.etcd.Compact();
  if (world.dice().Once(kBreak)) world.BreakAll(options_.node.node);
  world.Run(options_.node, kTick, [this] { Tick(); });
}

void EtcdHost::AfterEvent() {
  const mvccpb::KeyValue* const key = context_.etcd.Find(keys_.view());
  if (key != nullptr && std::exchange(revision_, key->mod_revision()) != key->mod_revision()) {
    View view;
    view.ParseFromString(key->value());
    if (view.number() <= published_.number()) {
      context_.oracle.Violated(
          absl::StrCat("etcd has view ", view.number(), " after view ", published_.number()));
    }
    Publish(view);
  }
  const mvccpb::KeyValue* const end = context_.etcd.Find(keys_.end());
  if (end == nullptr) return;
  Verdict verdict;
  verdict.ParseFromString(end->value());
  finished_ |= verdict.code() == 0;
  failure_.Update(absl::Status(static_cast<absl::StatusCode>(verdict.code()), verdict.reason()));
}

}  // namespace evenshard
