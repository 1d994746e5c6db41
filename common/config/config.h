#ifndef EVENSHARD_COMMON_CONFIG_CONFIG_H_
#define EVENSHARD_COMMON_CONFIG_CONFIG_H_

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/time/time.h"
#include "absl/types/span.h"
#include "common/config/config_contract.h"
#include "common/config/text/config_places.h"
#include "common/config/text/config_problems.h"
#include "proto/config.pb.h"

namespace evenshard {

// A ClusterConfig whose fields have been checked, each by itself and with the others. Immutable.
//
// Neither the model nor the plan is made or checked: common/placement/planned_config.h does that. A
// program that only talks to the processes of a run needs no more than this.
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

  // Whether workers bring the model.
  bool is_from_workers() const { return proto_.model().has_from_workers(); }
  // Errors: INVALID_ARGUMENT with the field, if the model is one that workers bring.
  absl::Status CheckOwnModel() const;
  // Whether the pushes of an iteration carry the initial parameters (worker 0's) and not gradients:
  // at the first iteration of a run with model.from_workers.
  bool IsInitial(uint64_t iteration) const { return iteration == 0 && is_from_workers(); }

  // Whether workers exchange gradients among themselves, without shards (topology: RING).
  bool is_ring() const { return proto_.topology() == ClusterConfig::RING; }
  // Errors: INVALID_ARGUMENT with the field, if this is a ring, for what is about shards.
  absl::Status CheckHasShards() const;
  // Whether workers have iterations in common: under SYNC and QUORUM.
  bool is_synchronous() const { return IsSynchronous(proto_.update()); }
  // Whether an update is made without waiting for all workers of its iteration: under QUORUM.
  bool has_quorum() const { return proto_.update().policy() == Update::QUORUM; }
  // Whether the shards clip the mean gradient by its norm over all parameters (SYNC and QUORUM with
  // update.clip_global_norm). Under ASYNC workers clip their own gradients.
  bool clips_mean() const { return ClipsMean(proto_); }
  // How long a chunk waits for the slowest worker: limits.exchange_seconds. If the config does not
  // say, and workers bring the model, it is half an hour: their programs may evaluate as long.
  absl::Duration worker_patience() const;

  // Paths are resolved, and the defaults that depend on other fields are filled in: `update` gives
  // that of `exchange.schedule`, and `recovery.etcd` and `topology` that of `.shared_memory`.
  const ClusterConfig& proto() const { return proto_; }
  int shards() const { return proto_.shard_size(); }
  int workers() const { return proto_.workers(); }
  const std::string& address(int shard) const { return proto_.shard(shard).address(); }
  // Whether the config says what survives the death of a process.
  bool has_recovery() const { return proto_.has_recovery(); }
  // The ps processes: one for each shard, and then the spares. `ps --shard` takes their index.
  int processes() const { return shards() + proto_.recovery().spare_size(); }
  const std::string& process_address(int process) const;

  // Returns INVALID_ARGUMENT with a problem of a field, such as "data.idx.images", and the place
  // where the field was set.
  absl::Status FieldError(absl::string_view field, absl::string_view problem) const;

 protected:
  // What a config is made from.
  struct Source {
    std::string text;
    std::string name;
    std::vector<std::string> overrides;
  };

  // Returns the source in a file. Errors: those of Load that are about the file.
  static absl::StatusOr<std::shared_ptr<const Source>> Read(
      const std::string& path, absl::Span<const std::string> overrides);
  // Makes a config without checking its fields. Errors: those of Parse that are about the text.
  static absl::StatusOr<Config> Unchecked(std::shared_ptr<const Source> source);
  // Adds all problems of the fields, and sets the defaults.
  void Check(FieldProblems* problems);
  // The last step, after all checks, since errors show paths as they were written.
  void ResolvePaths();

  std::shared_ptr<const Source> source_;
  ClusterConfig proto_;
  std::shared_ptr<const FieldPlaces> places_;

 private:
  Config(std::shared_ptr<const Source> source, ClusterConfig proto,
         std::shared_ptr<const FieldPlaces> places);

  static absl::StatusOr<Config> Make(std::shared_ptr<const Source> source);
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_CONFIG_H_
