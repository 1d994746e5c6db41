#ifndef EVENSHARD_TESTS_TOOLS_PSCTL_REPORT_PLAN_PLAN_FIXTURE_H_
#define EVENSHARD_TESTS_TOOLS_PSCTL_REPORT_PLAN_PLAN_FIXTURE_H_

#include <catch2/catch.hpp>
#include <string>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "common/placement/planned_config.h"

namespace evenshard {

// 4 layers of 68, 20, 20 and 10 parameters, for 3 workers and 2 shards.
inline PlannedConfig SmallConfig(const std::string& partition,
                                 const std::vector<std::string>& overrides = {}) {
  auto config = PlannedConfig::Parse(absl::StrCat(R"pb(
                                                    model {
                                                      input { channels: 1 height: 4 width: 4 }
                                                      layer {
                                                        name: "a"
                                                        linear { out_features: 4 }
                                                      }
                                                      layer {
                                                        name: "b"
                                                        linear { out_features: 4 }
                                                      }
                                                      layer {
                                                        name: "c"
                                                        linear { out_features: 4 }
                                                      }
                                                      layer {
                                                        name: "d"
                                                        linear { out_features: 2 }
                                                      }
                                                    }
                                                    shard { address: "127.0.0.1:7001" }
                                                    shard { address: "127.0.0.1:7002" }
                                                    workers: 3
                                                    update { policy: SYNC }
                                                    training { iterations: 1 }
                                                    compute { backend: EMULATED }
                                                    partition {)pb",
                                                  partition, "}"),
                                     "small", overrides);
  INFO(config.status().message());
  REQUIRE(config.ok());
  return *std::move(config);
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_TOOLS_PSCTL_REPORT_PLAN_PLAN_FIXTURE_H_
