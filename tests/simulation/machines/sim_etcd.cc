#include "tests/simulation/machines/sim_etcd.h"

#include <utility>
#include <variant>

namespace evenshard {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::WatchResponse;

// Whether a key is the one that is asked for, or in the range.
bool IsIn(const std::string& asked, const std::string& key, const std::string& end) {
  return end.empty() ? asked == key : asked >= key && asked < end;
}

}  // namespace

EtcdAnswer SimEtcd::Answer(const EtcdRequest& request, NodeRef node, absl::Time now) {
  return std::visit([&](const auto& each) { return AnswerTo(each, node, now); }, request);
}

EtcdAnswer SimEtcd::AnswerTo(const etcdserverpb::RangeRequest& request, NodeRef, absl::Time) {
  return Range(request);
}

etcdserverpb::RangeResponse SimEtcd::Range(const etcdserverpb::RangeRequest& request) const {
  etcdserverpb::RangeResponse response;
  response.mutable_header()->set_revision(revision_);
  for (const auto& [key, value] : keys_) {
    if (IsIn(key, request.key(), request.range_end())) *response.add_kvs() = value;
  }
  return response;
}

EtcdAnswer SimEtcd::AnswerTo(const etcdserverpb::TxnRequest& request, NodeRef, absl::Time) {
  etcdserverpb::TxnResponse response;
  response.set_succeeded(true);
  for (const Compare& compare : request.compare()) {
    if (!Holds(compare)) response.set_succeeded(false);
  }
  const auto& operations = response.succeeded() ? request.success() : request.failure();
  for (const etcdserverpb::RequestOp& operation : operations) {
    const int64_t lease = operation.request_put().lease();
    if (lease != 0 && !leases_.contains(lease)) {
      return absl::NotFoundError("etcd: requested lease not found");
    }
  }
  for (const etcdserverpb::RequestOp& operation : operations) {
    etcdserverpb::ResponseOp* const done = response.add_responses();
    if (operation.has_request_range()) {
      *done->mutable_response_range() = Range(operation.request_range());
    } else if (operation.has_request_put()) {
      Put(operation.request_put());
      done->mutable_response_put();
    }
  }
  Commit();
  response.mutable_header()->set_revision(revision_);
  return response;
}

EtcdAnswer SimEtcd::AnswerTo(const EtcdLeaseRequest& request, NodeRef node, absl::Time now) {
  if (request.id == 0) {
    leases_[++last_lease_] = {.holder = node, .ttl = request.ttl, .ends = now + request.ttl};
    return last_lease_;
  }
  const auto found = leases_.find(request.id);
  if (found == leases_.end()) return absl::NotFoundError("the lease has ended");
  found->second.ends = now + found->second.ttl;
  return request.id;
}

bool SimEtcd::Holds(const Compare& compare) const {
  const mvccpb::KeyValue* const key = Find(compare.key());
  switch (compare.target()) {
    case Compare::CREATE:
      return compare.create_revision() == (key == nullptr ? 0 : key->create_revision());
    case Compare::MOD:
      return compare.mod_revision() == (key == nullptr ? 0 : key->mod_revision());
    case Compare::LEASE:
      return key != nullptr && compare.lease() == key->lease();
    default:
      return false;
  }
}

const mvccpb::KeyValue* SimEtcd::Find(const std::string& key) const {
  const auto found = keys_.find(key);
  return found == keys_.end() ? nullptr : &found->second;
}

std::optional<NodeRef> SimEtcd::HolderOf(const std::string& key) const {
  const mvccpb::KeyValue* const found = Find(key);
  if (found == nullptr || found->lease() == 0) return std::nullopt;
  return leases_.at(found->lease()).holder;
}

std::vector<std::string> SimEtcd::KeysOf(int64_t lease) const {
  std::vector<std::string> keys;
  for (const auto& [key, value] : keys_) {
    if (value.lease() == lease) keys.push_back(key);
  }
  return keys;
}

void SimEtcd::Put(const etcdserverpb::PutRequest& request) {
  mvccpb::KeyValue& key = keys_[request.key()];
  if (key.create_revision() == 0) key.set_create_revision(revision_ + 1);
  key.set_key(request.key());
  key.set_mod_revision(revision_ + 1);
  key.set_lease(request.lease());
  std::string value = request.value();
  on_put(request.key(), &value);
  key.set_value(std::move(value));
  mvccpb::Event& event = change_.emplace_back();
  *event.mutable_kv() = key;
}

void SimEtcd::Delete(const std::string& key) {
  if (keys_.erase(key) == 0) return;
  mvccpb::Event& event = change_.emplace_back();
  event.set_type(mvccpb::Event::DELETE);
  event.mutable_kv()->set_key(key);
  event.mutable_kv()->set_mod_revision(revision_ + 1);
}

void SimEtcd::Commit() {
  if (change_.empty()) return;
  ++revision_;
  history_.insert(history_.end(), change_.begin(), change_.end());
  for (const auto& [id, watcher] : watches_) {
    WatchResponse response;
    response.mutable_header()->set_revision(revision_);
    for (const mvccpb::Event& event : change_) {
      if (IsIn(event.kv().key(), watcher.key, watcher.end)) *response.add_events() = event;
    }
    if (!response.events().empty()) watcher.send(response);
  }
  change_.clear();
}

void SimEtcd::Revoke(int64_t lease) {
  leases_.erase(lease);
  for (const std::string& key : KeysOf(lease)) Delete(key);
  Commit();
}

SimEtcd::WatchId SimEtcd::Watch(const etcdserverpb::WatchCreateRequest& request, Send send) {
  WatchResponse response;
  response.mutable_header()->set_revision(revision_);
  response.set_created(true);
  send(response);
  response.set_created(false);
  if (request.start_revision() <= compacted_) {
    response.set_canceled(true);
    response.set_compact_revision(compacted_);
    send(response);
    return 0;
  }
  for (const mvccpb::Event& event : history_) {
    if (event.kv().mod_revision() < request.start_revision()) continue;
    if (IsIn(event.kv().key(), request.key(), request.range_end())) *response.add_events() = event;
  }
  if (!response.events().empty()) send(response);
  watches_[++last_watch_] = {
      .key = request.key(), .end = request.range_end(), .send = std::move(send)};
  return last_watch_;
}

void SimEtcd::RequestProgress(WatchId watch) {
  const auto found = watches_.find(watch);
  if (found == watches_.end()) return;
  WatchResponse response;
  response.mutable_header()->set_revision(revision_);
  found->second.send(response);
}

void SimEtcd::EndLeases(absl::Time now) {
  std::vector<int64_t> ended;
  for (const auto& [id, lease] : leases_) {
    if (lease.ends < now) ended.push_back(id);
  }
  for (const int64_t id : ended) {
    for (const std::string& key : KeysOf(id)) on_loss(key, leases_.at(id).holder);
    Revoke(id);
  }
}

void SimEtcd::ChangeLeader(absl::Time now) {
  for (auto& [id, lease] : leases_) lease.ends = now + lease.ttl;
}

void SimEtcd::Restart(absl::Time now) {
  watches_.clear();
  ChangeLeader(now);
}

void SimEtcd::Compact() {
  compacted_ = revision_;
  history_.clear();
}

void SimEtcd::Clear() {
  const std::map<std::string, mvccpb::KeyValue> keys = keys_;
  for (const auto& [key, value] : keys) Delete(key);
  Commit();
}

}  // namespace evenshard
