#include "common/control/etcd/etcd_keys.h"

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

using etcdserverpb::Compare;
using etcdserverpb::TxnRequest;

// "ps/1", "worker/3"
std::string PathOf(const ProcessState& state) {
  return state.has_worker() ? absl::StrCat("worker/", state.worker())
                            : absl::StrCat("ps/", state.ps());
}

Compare* AddEqual(const std::string& key, Compare::CompareTarget target, TxnRequest* request) {
  Compare* compare = request->add_compare();
  compare->set_result(Compare::EQUAL);
  compare->set_target(target);
  compare->set_key(key);
  return compare;
}

}  // namespace

EtcdKeys::EtcdKeys(absl::string_view run) : run_(absl::StrCat("/evenshard/", run, "/")) {}

std::string EtcdKeys::Process(const ProcessState& state) const {
  return absl::StrCat(processes(), PathOf(state));
}

std::string EtcdKeys::Refused(const ProcessState& state) const {
  return absl::StrCat(run_, "view/refused/", PathOf(state));
}

std::string NameOf(const ProcessState& state) {
  return state.has_worker() ? absl::StrCat("worker ", state.worker())
                            : absl::StrCat("ps ", state.ps());
}

void CompareCreateRevision(const std::string& key, int64_t revision, TxnRequest* request) {
  AddEqual(key, Compare::CREATE, request)->set_create_revision(revision);
}

void CompareModRevision(const std::string& key, int64_t revision, TxnRequest* request) {
  AddEqual(key, Compare::MOD, request)->set_mod_revision(revision);
}

void CompareLease(const std::string& key, int64_t lease, TxnRequest* request) {
  AddEqual(key, Compare::LEASE, request)->set_lease(lease);
}

void PutOnSuccess(const std::string& key, const std::string& value, int64_t lease,
                  TxnRequest* request) {
  etcdserverpb::PutRequest* put = request->add_success()->mutable_request_put();
  put->set_key(key);
  put->set_value(value);
  put->set_lease(lease);
}

void ReadOnFailure(const std::string& key, TxnRequest* request) {
  request->add_failure()->mutable_request_range()->set_key(key);
}

const mvccpb::KeyValue* ReadKey(const etcdserverpb::TxnResponse& response, int i) {
  if (i < 0 || i >= response.responses_size()) return nullptr;
  const etcdserverpb::RangeResponse& range = response.responses(i).response_range();
  return range.kvs().empty() ? nullptr : &range.kvs(0);
}

}  // namespace evenshard
