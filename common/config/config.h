#ifndef EVENSHARD_COMMON_CONFIG_CONFIG_H_
#define EVENSHARD_COMMON_CONFIG_CONFIG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/config_places.h"
#include "common/placement/model.h"
#include "common/placement/plan.h"
#include "common/placement/plan_choice.h"
#include "common/placement/simulator/planned_run.h"
#include "proto/config.pb.h"

namespace evenshard {

// A valid ClusterConfig, with the model and the plan that follow from it. Immutable.
//
// With model.from_workers a config has neither until workers have declared their model. Everything
// else begins with Declared.
class Config {
 public:
  // Reads a file in protobuf text format, applies `overrides`, such as "update.policy=ASYNC" or
  // "shard[1].address=host:port", and checks the result. Relative paths of files and folders
  // are resolved against the folder of the file.
  //
  // Errors: INVALID_ARGUMENT with one line for each problem, "file:line: field: what is wrong, what
  // is allowed", or "--set field=value: field: ..." if an override is the cause; the code of the
  // system's error, such as NOT_FOUND, if the file cannot be read.
  static absl::StatusOr<Config> Load(const std::string& path,
                                     absl::Span<const std::string> overrides = {});

  // Does the same for a text in memory. `name` takes the place of the file in errors.
  static absl::StatusOr<Config> Parse(absl::string_view text, const std::string& name,
                                      absl::Span<const std::string> overrides = {});

  // Whether the model is known. Without it, only proto(), what counts processes, their addresses,
  // run_fingerprint() and FieldError() may be used.
  bool has_model() const { return !model_.tensors().empty(); }
  // Whether workers bring the model.
  bool is_from_workers() const { return proto_.model().has_from_workers(); }
  // Errors: INVALID_ARGUMENT with the field, if the model is one that workers bring.
  absl::Status CheckOwnModel() const;
  // Returns this config with what workers declare. Errors: INVALID_ARGUMENT, as Parse, if that is
  // not a valid model or optimizer, or differs from what the file or an earlier declaration says;
  // FAILED_PRECONDITION unless is_from_workers().
  absl::StatusOr<Config> Declared(const Declaration& declaration) const;
  // What workers have declared, with the tensors that the file has.
  const Declaration& declaration() const { return declaration_; }
  // Whether what is pushed at an iteration is no gradient, but the parameters to begin with: those
  // of worker 0, at the first iteration of a run with model.from_workers.
  bool IsInitial(uint64_t iteration) const { return iteration == 0 && is_from_workers(); }
  // The encoding of what is pushed at an iteration.
  Encoding gradient_encoding(uint64_t iteration) const {
    return IsInitial(iteration) ? FLOAT32 : proto_.exchange().gradient_encoding();
  }

  // Paths are resolved, and every default that depends on something else is filled in. The model
  // gives those of `data.synthetic.shape` and `.classes`, of `data.image_folder.resize` and of the
  // stride of a pool; `update` gives that of `exchange.schedule`, and `recovery.etcd` that of
  // `.shared_memory`; common/placement/plan_choice.h chooses `limits.chunk_bytes`, from which
  // `.window_bytes` and `.lead_bytes` follow.
  const ClusterConfig& proto() const { return proto_; }
  const Model& model() const { return model_; }
  const Plan& plan() const { return choice_.plan; }
  // The plan, and why it and its chunks are as they are.
  const PlanChoice& plan_choice() const { return choice_; }
  // What a simulation takes. It refers to this config.
  PlannedRun planned_run() const { return {proto_, model_, choice_.plan}; }
  int shards() const { return proto_.shard_size(); }
  int workers() const { return proto_.workers(); }
  const std::string& address(int shard) const { return proto_.shard(shard).address(); }
  // Whether the config says what survives the death of a process.
  bool has_recovery() const { return proto_.has_recovery(); }
  // The ps processes: one for each shard, and then the spares. `ps --shard` takes their index.
  int processes() const { return shards() + proto_.recovery().spare_size(); }
  const std::string& process_address(int process) const;

  // Returns the part of the config that shards and workers must agree on. It has, for example, no
  // addresses, paths or threads; docs/configuration.md lists what is left out, and why. Fields at
  // their default are cleared, so that equal contracts have equal bytes.
  ClusterConfig Contract() const;
  // The hash of the contract. It is equal in every process of a run.
  uint64_t fingerprint() const { return fingerprint_; }
  // The same without what workers have declared.
  uint64_t run_fingerprint() const { return run_fingerprint_; }

  // Returns INVALID_ARGUMENT with a problem of a field, such as "data.idx.images", and the place
  // where the field was set.
  absl::Status FieldError(absl::string_view field, absl::string_view problem) const;

 private:
  // What a config is made from.
  struct Source {
    std::string text;
    std::string name;
    std::vector<std::string> overrides;
  };

  Config(std::shared_ptr<const Source> source, ClusterConfig proto, FieldPlaces places)
      : source_(std::move(source)), proto_(std::move(proto)), places_(std::move(places)) {}

  static absl::StatusOr<Config> Make(std::shared_ptr<const Source> source,
                                     const Declaration& declaration);
  // Makes the model and the plan.
  absl::Status Complete();

  std::shared_ptr<const Source> source_;
  Declaration declaration_;
  ClusterConfig proto_;
  Model model_;
  PlanChoice choice_;
  FieldPlaces places_;
  uint64_t fingerprint_ = 0;
  uint64_t run_fingerprint_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_CONFIG_H_
