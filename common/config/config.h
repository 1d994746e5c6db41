#ifndef PS_COMMON_CONFIG_CONFIG_H_
#define PS_COMMON_CONFIG_CONFIG_H_

#include <cstdint>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/config_places.h"
#include "common/model/model.h"
#include "common/model/plan.h"
#include "proto/config.pb.h"

namespace ps {

// A checked ClusterConfig with the model and the plan that follow from it.
// Immutable after Load or Parse.
class Config {
 public:
  // Reads protobuf text format from `path`, applies `overrides`
  // ("update.policy=ASYNC", "shard[1].address=host:port"), and checks the
  // whole. Relative paths in it become relative to the file's folder.
  //
  // Errors: INVALID_ARGUMENT with one problem a line, each as "file:line: field:
  // what is wrong, what is allowed", or "--set field=value: field: ..." where an
  // override is the cause; the code of the system's error (NOT_FOUND, ...) for a
  // file that cannot be read.
  static absl::StatusOr<Config> Load(const std::string& path,
                                     absl::Span<const std::string> overrides = {});

  // The same for a text in memory; `name` stands for the file in errors.
  static absl::StatusOr<Config> Parse(absl::string_view text, const std::string& name,
                                      absl::Span<const std::string> overrides = {});

  // With paths resolved, and set what is by default the model's: `data.synthetic`'s
  // shape and classes, `data.image_folder.resize`, the stride of a pool; and with
  // `exchange.schedule`, which follows from `update` where it is not set.
  const ClusterConfig& proto() const { return proto_; }
  const Model& model() const { return model_; }
  const Plan& plan() const { return plan_; }
  int shards() const { return proto_.shard_size(); }
  int workers() const { return proto_.workers(); }
  const std::string& address(int shard) const { return proto_.shard(shard).address(); }

  // What shards and workers must agree on, in one spelling: without addresses,
  // paths, threads, the limits other than chunk_bytes and when to evaluate; fields
  // at their default are cleared. docs/configuration.md gives the reasons.
  ClusterConfig Contract() const;
  // Of the contract: equal in every process of a run.
  uint64_t fingerprint() const { return fingerprint_; }

  // An INVALID_ARGUMENT error about a field ("data.idx.images"), with the place
  // where it was set.
  absl::Status FieldError(absl::string_view field, absl::string_view problem) const;

 private:
  Config(ClusterConfig proto, Model model, Plan plan, FieldPlaces places);

  ClusterConfig proto_;
  Model model_;
  Plan plan_;
  FieldPlaces places_;
  uint64_t fingerprint_ = 0;
};

}  // namespace ps

#endif  // PS_COMMON_CONFIG_CONFIG_H_
