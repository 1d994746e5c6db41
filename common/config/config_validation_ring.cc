#include <cstdint>

#include "absl/strings/str_cat.h"
#include "common/config/config_validation.h"
#include "common/config/parameter_encodings.h"

namespace evenshard {
namespace {

constexpr char kTopology[] = "topology";

// Refuses what is set and cannot be in a ring, and says why and what is allowed.
class Refusals {
 public:
  explicit Refusals(FieldProblems* problems) : problems_(*problems) {}

  void Refuse(bool is_set, absl::string_view field, absl::string_view is, absl::string_view why) {
    if (!is_set) return;
    problems_.Add(field, absl::StrCat(is, " with topology RING, ", why), {kTopology});
  }

 private:
  FieldProblems& problems_;
};

void RefuseShards(const ClusterConfig& config, Refusals& refusals) {
  refusals.Refuse(!config.shard().empty(), "shard", "is given",
                  "whose workers need no shards, allowed: none");
  refusals.Refuse(config.colocated(), "colocated", "is true",
                  "whose workers need no shards, allowed: false");
  refusals.Refuse(config.has_partition(), "partition", "is given",
                  "where each bucket is cut into equal parts, one for each worker, allowed: none");
  const Limits& limits = config.limits();
  constexpr char kNoEffect[] = "has no effect";
  constexpr char kOfShards[] = "because it is about shards, allowed: none";
  refusals.Refuse(limits.has_lead_bytes(), "limits.lead_bytes", kNoEffect, kOfShards);
  refusals.Refuse(limits.has_model_bytes(), "limits.model_bytes", kNoEffect, kOfShards);
  refusals.Refuse(limits.has_reconnect_seconds(), "limits.reconnect_seconds", kNoEffect,
                  "which ends when a connection breaks, allowed: none");
  refusals.Refuse(limits.has_snapshot_bytes(), "limits.snapshot_bytes", kNoEffect, kOfShards);
}

// What programs that bring the model cannot have. In 16 bits a sum could look as if nobody had a
// gradient (RingTensors), and a norm of sums of which some are left out is not computed.
void RefuseToPrograms(const ClusterConfig& config, Refusals& refusals) {
  if (!config.model().has_from_workers()) return;
  constexpr char kWhy[] =
      "where programs bring the model and everything travels in 32 bits, allowed: FLOAT32";
  const ExchangeConfig& exchange = config.exchange();
  refusals.Refuse(exchange.gradient_encoding() != FLOAT32, "exchange.gradient_encoding",
                  absl::StrCat("is ", Encoding_Name(exchange.gradient_encoding())), kWhy);
  refusals.Refuse(exchange.parameter_encoding() != FLOAT32, "exchange.parameter_encoding",
                  absl::StrCat("is ", Encoding_Name(exchange.parameter_encoding())), kWhy);
  for (const DeclaredTensor& tensor : config.model().from_workers().tensor()) {
    refusals.Refuse(
        tensor.type() != FLOAT32, "model.from_workers",
        absl::StrCat("has ", tensor.name(), ", which is ", Encoding_Name(tensor.type())), kWhy);
  }
  refusals.Refuse(config.update().clip_global_norm() != 0, "update.clip_global_norm",
                  absl::StrCat("is ", config.update().clip_global_norm()),
                  "where programs bring the model, allowed: 0 (with optimizer.kind MEAN a program "
                  "clips the mean before its own step)");
}

void RefuseRecovery(const ClusterConfig& config, Refusals& refusals) {
  const Recovery& recovery = config.recovery();
  refusals.Refuse(config.has_recovery() && config.model().has_from_workers(), "recovery",
                  "is given with model.from_workers",
                  "whose checkpoints only the program `worker` writes and reads, allowed: none");
  refusals.Refuse(recovery.replicas() != 0, "recovery.replicas",
                  absl::StrCat("is ", recovery.replicas()),
                  "which goes back to a checkpoint after a loss, allowed: 0");
  refusals.Refuse(!recovery.spare().empty(), "recovery.spare", "is given",
                  "which has no shards to replace, allowed: none");
  refusals.Refuse(recovery.has_etcd(), "recovery.etcd", "is given",
                  "whose workers only launch starts again, allowed: none");
  refusals.Refuse(recovery.checkpoint().has_every_seconds(), "recovery.checkpoint.every_seconds",
                  absl::StrCat("is ", recovery.checkpoint().every_seconds()),
                  "whose workers all cut after the same iteration without asking anybody, allowed: "
                  "every_iterations in its place");
  refusals.Refuse(recovery.checkpoint().has_buffer_bytes(), "recovery.checkpoint.buffer_bytes",
                  "has no effect", "where a worker copies all of its part, allowed: none");
  refusals.Refuse(recovery.has_min_workers() && recovery.min_workers() < 2, "recovery.min_workers",
                  absl::StrCat("is ", recovery.min_workers()),
                  "which needs two, allowed: 2 to the number of workers");
}

void RefuseModes(const ClusterConfig& config, Refusals& refusals) {
  const Update& update = config.update();
  refusals.Refuse(
      update.has_policy() && update.policy() != Update::SYNC, "update.policy",
      absl::StrCat("is ", Update::Policy_Name(update.policy())),
      "in which every sum has all workers' gradients, allowed: SYNC, or topology PARAMETER_SERVER");
  refusals.Refuse(update.max_norm() != 0, "update.max_norm", absl::StrCat("is ", update.max_norm()),
                  "where no shard sees each worker's gradient, allowed: 0");
  const ExchangeConfig& exchange = config.exchange();
  refusals.Refuse(!IsForParameters(exchange.gradient_encoding()), "exchange.gradient_encoding",
                  absl::StrCat("is ", Encoding_Name(exchange.gradient_encoding())),
                  "where every worker on the way would round the sum once more, allowed: FLOAT32, "
                  "FLOAT16, BFLOAT16");
  refusals.Refuse(exchange.has_update_encoding(), "exchange.update_encoding",
                  absl::StrCat("is ", Encoding_Name(exchange.update_encoding())),
                  "whose workers pass on parameters, allowed: none");
  refusals.Refuse(exchange.has_shared_memory() && exchange.shared_memory(),
                  "exchange.shared_memory", "is true",
                  "where workers exchange messages, allowed: false, the default with it");
  refusals.Refuse(config.local().fragments() > 1, "local.fragments",
                  absl::StrCat("is ", config.local().fragments()),
                  "whose chunks may have layers of several fragments, allowed: 1");
}

void ValidateWorkers(const ClusterConfig& config, FieldProblems* problems) {
  const int given = config.ring().address_size();
  if (given != config.workers()) {
    problems->Add("ring.address",
                  absl::StrCat("has ", given, " entries, allowed: ", config.workers(),
                               ", one for each worker in the order of ranks"),
                  {"workers"});
  }
}

}  // namespace

void ValidateRing(const ClusterConfig& config, FieldProblems* problems) {
  const bool is_ring = config.topology() == ClusterConfig::RING;
  ValidateUse(config.has_ring(), is_ring, "ring", kTopology,
              ClusterConfig::Topology_Name(config.topology()), "RING", problems);
  if (!is_ring) return;
  Refusals refusals(problems);
  RefuseShards(config, refusals);
  RefuseRecovery(config, refusals);
  RefuseModes(config, refusals);
  RefuseToPrograms(config, refusals);
  if (config.workers() == 1) {
    problems->Add("workers",
                  "is 1 with topology RING, and nobody is there to pass anything on to, allowed: "
                  "at least 2",
                  {kTopology});
  }
  ValidateWorkers(config, problems);
}

void ValidateBuckets(const ClusterConfig& config, FieldProblems* problems) {
  constexpr int64_t kMaxBucketBytes = int64_t{1} << 40;
  const int64_t chunk_bytes = config.limits().chunk_bytes();
  const auto require = [&](const char* field, int64_t bytes) {
    problems->Require(
        bytes >= chunk_bytes && bytes <= kMaxBucketBytes, field, bytes,
        absl::StrCat("at least a chunk, ", chunk_bytes, ", and at most ", kMaxBucketBytes),
        {"limits.chunk_bytes"});
  };
  require("ring.bucket_bytes", config.ring().bucket_bytes());
  require("ring.first_bucket_bytes", config.ring().first_bucket_bytes());
}

}  // namespace evenshard
