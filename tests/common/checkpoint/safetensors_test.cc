#include "common/checkpoint/safetensors.h"

#include <catch2/catch.hpp>

#include "google/protobuf/text_format.h"

namespace evenshard {
namespace {

TEST_CASE("the layout equals that of a hand-made file byte for byte") {
  ModelSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(R"pb(
                                                          input { channels: 1 height: 1 width: 3 }
                                                          layer {
                                                            name: "fc"
                                                            linear { out_features: 2 }
                                                          }
                                                        )pb",
                                                        &spec));
  const auto model = Model::Create(spec);
  REQUIRE(model.ok());

  const SafetensorsLayout layout = MakeSafetensorsLayout(*model);
  const std::string json = R"({"__metadata__":{"format":"pt","model":"custom"},)"
                           R"("fc/weight":{"dtype":"F32","shape":[2,3],"data_offsets":[0,24]},)"
                           R"("fc/bias":{"dtype":"F32","shape":[2],"data_offsets":[24,32]}})";
  REQUIRE(json.size() == 174);
  CHECK(layout.header == std::string("\xb0\0\0\0\0\0\0\0", 8) + json + "  ");
  CHECK(layout.tensor_offsets == std::vector<int64_t>{184, 208});
  CHECK(layout.file_size == 216);
}

TEST_CASE("names from a config cannot break the header") {
  ModelSpec spec;
  REQUIRE(google::protobuf::TextFormat::ParseFromString(R"pb(
                                                          input { channels: 1 height: 1 width: 1 }
                                                          layer {
                                                            name: "odd\"name"
                                                            linear { out_features: 1 }
                                                          }
                                                        )pb",
                                                        &spec));
  const auto model = Model::Create(spec);
  REQUIRE(model.ok());
  CHECK(MakeSafetensorsLayout(*model).header.find(R"("odd\"name/weight")") != std::string::npos);
}

}  // namespace
}  // namespace evenshard
