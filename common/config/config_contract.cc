#include "common/config/config_contract.h"

#include <google/protobuf/text_format.h>

#include <memory>
#include <vector>

#include "common/config/shard_rates.h"

namespace evenshard {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

// Stands in a contract for a value in which processes may differ, where they must agree on whether
// there is one.
constexpr char kGiven[] = "given";

std::vector<const FieldDescriptor*> SetFields(const Message& message) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  return fields;
}

void VisitStrings(Message* message, const std::function<void(std::string*)>& visit) {
  const Reflection* reflection = message->GetReflection();
  for (const FieldDescriptor* field : SetFields(*message)) {
    if (field->cpp_type() == FieldDescriptor::CPPTYPE_MESSAGE) {
      VisitStrings(reflection->MutableMessage(message, field), visit);
    } else if (field->cpp_type() == FieldDescriptor::CPPTYPE_STRING) {
      std::string value = reflection->GetString(*message, field);
      visit(&value);
      reflection->SetString(message, field, value);
    }
  }
}

std::string ValueOf(const Message& message, const FieldDescriptor* field) {
  std::string text;
  google::protobuf::TextFormat::PrintFieldValueToString(message, field, -1, &text);
  return text;
}

// Whether a field that is absent has another value than the descriptor's default: a beta2 that of
// the kind, and a layer one that its name says.
bool HasDefaultElsewhere(const FieldDescriptor* field) {
  const auto is = [&](const google::protobuf::Descriptor* of, int number) {
    return field->containing_type() == of && field->number() == number;
  };
  return is(OptimizerConfig::descriptor(), OptimizerConfig::kBeta2FieldNumber) ||
         is(DeclaredTensor::descriptor(), DeclaredTensor::kLayerFieldNumber);
}

// Clears all fields whose value is their default, in nested messages too.
void ClearDefaults(Message* message) {
  // What a rule leaves out is the optimizer's, so a default that it sets has an effect.
  if (message->GetDescriptor() == OptimizerConfig::Rule::descriptor()) return;
  const Reflection* reflection = message->GetReflection();
  const std::unique_ptr<const Message> defaults(message->New());
  for (const FieldDescriptor* field : SetFields(*message)) {
    bool is_default;
    if (field->is_repeated()) {
      const bool holds_messages = field->message_type() != nullptr;
      for (int i = 0; holds_messages && i < reflection->FieldSize(*message, field); ++i) {
        ClearDefaults(reflection->MutableRepeatedMessage(message, field, i));
      }
      is_default = false;
    } else if (field->message_type() != nullptr) {
      Message* inner = reflection->MutableMessage(message, field);
      ClearDefaults(inner);
      is_default = SetFields(*inner).empty();
    } else {
      is_default =
          !HasDefaultElsewhere(field) && ValueOf(*message, field) == ValueOf(*defaults, field);
    }
    // A member of a oneof is kept, because which member is set has a meaning of its own.
    if (is_default && field->containing_oneof() == nullptr) reflection->ClearField(message, field);
  }
}

// The numbers of the shards' optimizer with local steps, as far as the config does not give them.
void SetOuterDefaults(ClusterConfig* config) {
  OptimizerConfig* outer = config->mutable_optimizer();
  if (outer->has_learning_rate()) return;
  // DiLoCo's scaling laws (Charles et al. 2025, arXiv:2503.09799) have these, by the workers.
  constexpr float kAlone = 0.4f, kFew = 0.6f, kMany = 0.8f;
  const int workers = config->workers();
  outer->set_learning_rate(workers == 1 ? kAlone : workers < 8 ? kFew : kMany);
}

}  // namespace

void VisitPaths(ClusterConfig* config, const std::function<void(std::string*)>& visit) {
  if (config->has_data()) VisitStrings(config->mutable_data(), visit);
  if (config->model().has_initial_parameters()) {
    visit(config->mutable_model()->mutable_initial_parameters());
  }
  if (config->recovery().checkpoint().has_folder()) {
    visit(config->mutable_recovery()->mutable_checkpoint()->mutable_folder());
  }
  VisitSecurityPaths(config, visit);
}

void VisitSecurityPaths(ClusterConfig* config, const std::function<void(std::string*)>& visit) {
  if (config->has_security()) {
    Security* const security = config->mutable_security();
    if (security->has_certificate()) visit(security->mutable_certificate());
    if (security->has_key()) visit(security->mutable_key());
    if (security->has_authority()) visit(security->mutable_authority());
  }
  if (config->recovery().has_etcd()) {
    Recovery::Etcd* const etcd = config->mutable_recovery()->mutable_etcd();
    if (etcd->has_authority()) visit(etcd->mutable_authority());
    if (etcd->has_certificate()) visit(etcd->mutable_certificate());
    if (etcd->has_key()) visit(etcd->mutable_key());
    if (etcd->has_password_file()) visit(etcd->mutable_password_file());
  }
}

void SetOuterKind(ClusterConfig* config) {
  if (!config->has_local() || config->optimizer().has_kind()) return;
  config->mutable_optimizer()->set_kind(IsAsynchronous(config->update())
                                            ? OptimizerConfig::DELAYED_NESTEROV
                                            : OptimizerConfig::NESTEROV);
}

bool NeedsMessages(const ClusterConfig& config) {
  // A worker may have gone on without the reply that a shard is about to write to its memory: under
  // QUORUM, and with views where that answers a repeat of what has been answered, unless the reply
  // is the same again and the memory has nothing else. Nor can a shard add anything to what is
  // there.
  const bool may_be_late =
      config.has_recovery() && (IsAsynchronous(config.update()) || config.has_local());
  return config.update().policy() == Update::QUORUM || may_be_late ||
         config.exchange().has_update_encoding() || config.topology() == ClusterConfig::RING;
}

void SetDefaults(ClusterConfig* config) {
  if (config->update().policy() == Update::SSP && config->update().staleness() == 0) {
    config->mutable_update()->set_policy(Update::SYNC);
    config->mutable_update()->clear_staleness();
  }
  if (config->update().policy() == Update::QUORUM &&
      config->update().quorum() == config->workers()) {
    config->mutable_update()->set_policy(Update::SYNC);
    config->mutable_update()->clear_quorum();
    config->mutable_update()->clear_grace();
    config->mutable_update()->clear_late();
  }
  SetOuterKind(config);
  if (config->has_local()) SetOuterDefaults(config);
  if (config->optimizer().kind() == OptimizerConfig::DELAYED_NESTEROV &&
      !config->optimizer().has_delay()) {
    config->mutable_optimizer()->set_delay(config->workers());
  }
  if (!config->exchange().has_schedule()) {
    const Update& update = config->update();
    const bool worker_clips = update.clip_global_norm() > 0 && IsAsynchronous(update);
    // A round ends with all of it known.
    const bool needs_whole =
        !config->has_local() && (worker_clips || update.non_finite() == Update::SKIP);
    const auto early =
        config->model().has_from_workers() ? ExchangeConfig::BACKWARD : ExchangeConfig::FULL;
    config->mutable_exchange()->set_schedule(needs_whole ? ExchangeConfig::SEQUENTIAL : early);
  }
  // A shard that lost its role unawares could go on writing to memory that it shares with a worker.
  // Only launch makes sure that such a shard has ended.
  if (config->recovery().has_etcd()) config->mutable_exchange()->set_shared_memory(false);
  if (NeedsMessages(*config)) config->mutable_exchange()->set_shared_memory(false);
}

ClusterConfig ContractOf(ClusterConfig config) {
  const Partition::Scheme scheme = config.partition().scheme();
  for (ShardAddress& shard : *config.mutable_shard()) {
    shard.clear_address();
    if (UsesShardRates(scheme)) continue;
    shard.clear_link_gbps();
    shard.clear_server_gbps();
  }
  if (scheme != Partition::AUTO) {
    config.clear_worker_link_gbps();
    config.clear_colocated();
    config.mutable_compute()->clear_profile();
  }
  if (scheme != Partition::LAYER_BASED) config.mutable_partition()->clear_placement();
  config.mutable_training()->clear_evaluate_every_epochs();
  config.mutable_training()->clear_evaluate_every_iterations();
  config.mutable_training()->clear_required_accuracy();
  VisitPaths(&config, [](std::string* path) { path->clear(); });
  config.clear_security();
  // Processes must agree on whether there is one.
  if (config.model().has_initial_parameters()) {
    config.mutable_model()->set_initial_parameters(kGiven);
  }
  if (config.compute().backend() == Compute::EMULATED) {
    config.clear_data();  // this backend does not read it
  } else {
    config.mutable_data()->clear_threads();
  }
  if (scheme != Partition::AUTO) config.mutable_compute()->clear_pace();
  auto* slowdown = config.mutable_compute()->mutable_emulated()->mutable_worker_slowdown();
  while (!slowdown->empty() && *slowdown->rbegin() == 1) slowdown->RemoveLast();
  config.mutable_compute()->clear_threads();
  config.mutable_compute()->mutable_cuda()->clear_device();
  config.mutable_compute()->mutable_cuda()->clear_workspace_bytes();
  config.mutable_compute()->mutable_cuda()->clear_timed_engines();
  config.mutable_exchange()->clear_shared_memory();
  for (ShardAddress& spare : *config.mutable_recovery()->mutable_spare()) spare.clear_address();
  config.mutable_ring()->clear_address();
  config.mutable_recovery()->mutable_checkpoint()->clear_buffer_bytes();
  if (config.recovery().has_etcd()) {
    Recovery::Etcd* const etcd = config.mutable_recovery()->mutable_etcd();
    etcd->clear_endpoint();
    etcd->add_endpoint(kGiven);
    etcd->clear_user();
  }
  const int64_t chunk_bytes = config.limits().chunk_bytes();
  config.clear_limits();
  config.mutable_limits()->set_chunk_bytes(chunk_bytes);
  const OptimizerConfig::Kind kind = config.optimizer().kind();
  ClearDefaults(&config);
  if (config.has_local()) config.mutable_optimizer()->set_kind(kind);  // SGD is no default then
  return config;
}

}  // namespace evenshard
