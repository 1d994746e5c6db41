#ifndef EVENSHARD_COMMON_PLACEMENT_PLANNED_CONFIG_H_
#define EVENSHARD_COMMON_PLACEMENT_PLANNED_CONFIG_H_

#include <cstdint>
#include <memory>
#include <string>

#include "absl/status/status.h"
#include "absl/status/statusor.h"
#include "absl/strings/string_view.h"
#include "absl/types/span.h"
#include "common/config/config.h"
#include "common/placement/model/model.h"
#include "common/placement/plan/plan.h"
#include "common/placement/plan/ring_plan.h"
#include "common/placement/plan/tensor_encoding.h"
#include "common/placement/plan_choice.h"
#include "common/placement/simulator/planned_run.h"
#include "common/wire/encoding.h"
#include "proto/config.pb.h"

namespace evenshard {

// A valid config, with the model and the plan that follow from it. Immutable.
//
// proto() also has the defaults that depend on these: model_checks.h says which the model gives;
// plan_choice.h chooses `limits.chunk_bytes`, from which `.window_bytes` and `.lead_bytes` follow.
//
// With model.from_workers a config has neither until workers have declared their model. Everything
// else begins with Declared.
class PlannedConfig : public Config {
 public:
  // Does what Config::Load does, checks the model and what depends on it, and makes the plan; under
  // AUTO that simulates an iteration with each placement. Errors: those of Config::Load, and
  // INVALID_ARGUMENT likewise for a problem of the model or the plan.
  static absl::StatusOr<PlannedConfig> Load(const std::string& path,
                                            absl::Span<const std::string> overrides = {});

  // Does the same for a text in memory. `name` takes the place of the file in errors.
  static absl::StatusOr<PlannedConfig> Parse(absl::string_view text, const std::string& name,
                                             absl::Span<const std::string> overrides = {});

  // Whether the model is known. Without it, only what Config has and run_fingerprint() may be used.
  bool has_model() const { return !model_.tensors().empty(); }
  // Returns this config with what workers declare. Errors: INVALID_ARGUMENT, as Parse, if that is
  // not a valid model or optimizer, or differs from what the file or an earlier declaration says;
  // FAILED_PRECONDITION unless is_from_workers().
  absl::StatusOr<PlannedConfig> Declared(const Declaration& declaration) const;
  // The declaration of the workers, with the tensors that the file has.
  const Declaration& declaration() const { return declaration_; }

  const Model& model() const { return model_; }
  // The plan of the shards, without any in a ring (is_ring).
  const Plan& plan() const { return choice_.plan; }
  // The plan of a ring, without buckets unless is_ring.
  const RingPlan& ring_plan() const { return ring_plan_; }
  // The plan, and why it and its chunks are as they are.
  const PlanChoice& plan_choice() const { return choice_; }
  // The encodings of the pushes of a chunk, and of the answers. What is assigned is FLOAT32.
  Encoding GradientEncoding(bool assigned, const Chunk& chunk) const {
    return assigned ? FLOAT32 : GradientEncodingOf(proto().exchange(), TensorOf(chunk));
  }
  Encoding ParameterEncoding(const Chunk& chunk) const {
    return ParameterEncodingOf(proto().exchange(), TensorOf(chunk));
  }
  Encoding AnswerEncoding(const Chunk& chunk) const {
    return AnswerEncodingOf(proto().exchange(), TensorOf(chunk));
  }
  // Where a chunk lies in the buffers of a worker, and in which type. A type of 16 bits is the
  // chunk's encoding, except that INT8, INT4 and E3M0 are the encoding of all gradients. A FLOAT32
  // chunk may travel in another.
  struct Place {
    Encoding type = FLOAT32;
    int64_t begin = 0;  // bytes
    int64_t bytes = 0;
  };
  Place GradientPlace(bool assigned, const Chunk& chunk) const {
    const Tensor& tensor = TensorOf(chunk);
    return assigned ? PlaceOf(FLOAT32, EncodedBytes(FLOAT32, tensor.offset), chunk)
                    : PlaceOf(tensor.gradient_type(), tensor.gradient_begin, chunk);
  }
  Place ParameterPlace(const Chunk& chunk) const {
    const Tensor& tensor = TensorOf(chunk);
    return PlaceOf(tensor.type, tensor.parameters_begin, chunk);
  }
  // Whether what is pushed of a chunk, and what comes of it, must be finite.
  bool MustBeFinite(const Chunk& chunk) const {
    return !IsBuffer(chunk) && proto().optimizer().kind() != OptimizerConfig::MEAN;
  }
  bool IsBuffer(const Chunk& chunk) const { return TensorOf(chunk).role == TensorRole::kBuffer; }
  const Tensor& TensorOf(const Chunk& chunk) const { return model_.tensors()[chunk.tensor]; }
  // The input of a simulation. It refers to this config.
  PlannedRun planned_run() const {
    return {proto(), model_, choice_.plan, is_ring() ? &ring_plan_ : nullptr};
  }

  // Returns the part of the config that shards and workers must agree on. It has, for example, no
  // addresses, paths or threads; docs/configuration.md lists what is left out, and why. Fields at
  // their default are cleared, so that equal contracts have equal bytes.
  ClusterConfig Contract() const;
  // The hash of the contract. It is equal in every process of a run.
  uint64_t fingerprint() const { return fingerprint_; }
  // The same without what workers have declared.
  uint64_t run_fingerprint() const { return run_fingerprint_; }

 private:
  explicit PlannedConfig(Config config) : Config(std::move(config)) {}

  static absl::StatusOr<PlannedConfig> Make(std::shared_ptr<const Source> source,
                                            const Declaration& declaration);
  // Checks everything, and makes the model and the plan.
  absl::Status Complete();
  // The last part of that for a ring, which has a plan of its own.
  void CompleteRing(const Model& model, FieldProblems* problems);
  static Place PlaceOf(Encoding type, int64_t tensor_begin, const Chunk& chunk) {
    return {type, tensor_begin + EncodedBytes(type, chunk.begin), EncodedBytes(type, chunk.size)};
  }

  Declaration declaration_;
  Model model_;
  PlanChoice choice_;
  RingPlan ring_plan_;
  uint64_t fingerprint_ = 0;
  uint64_t run_fingerprint_ = 0;
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_PLANNED_CONFIG_H_
