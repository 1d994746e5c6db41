#ifndef EVENSHARD_TESTS_COMMON_PLACEMENT_PLAN_MODEL_FIXTURE_H_
#define EVENSHARD_TESTS_COMMON_PLACEMENT_PLAN_MODEL_FIXTURE_H_

#include <google/protobuf/text_format.h>

#include <catch2/catch.hpp>
#include <string>
#include <utility>

#include "absl/status/statusor.h"
#include "common/placement/model/model.h"

namespace evenshard {

// Makes a model from the text of a ModelSpec.
inline Model ModelOf(const std::string& text) {
  ModelSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(text, &spec));
  absl::StatusOr<Model> model = Model::Create(spec);
  INFO(model.status().ToString());
  REQUIRE(model.ok());
  return *std::move(model);
}

inline Model Builtin(const std::string& name) { return ModelOf("builtin: \"" + name + "\""); }

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_COMMON_PLACEMENT_PLAN_MODEL_FIXTURE_H_
