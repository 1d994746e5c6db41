#ifndef EVENSHARD_TESTS_SERVER_AGREEMENT_DECIDER_CALLS_H_
#define EVENSHARD_TESTS_SERVER_AGREEMENT_DECIDER_CALLS_H_

#include <catch2/catch.hpp>
#include <cstdint>
#include <memory>
#include <optional>

#include "absl/status/statusor.h"
#include "proto/view.pb.h"
#include "server/agreement/agreement_decider.h"

namespace evenshard {

// The answer of a call, once there is one.
using Result = std::shared_ptr<std::optional<absl::StatusOr<AgreementAnswer>>>;

inline Result Take(AgreementDecider& decider, const AgreementReport& report) {
  auto result = std::make_shared<std::optional<absl::StatusOr<AgreementAnswer>>>();
  decider.Take(report, [result](const absl::StatusOr<AgreementAnswer>& answer) {
    REQUIRE_FALSE(result->has_value());  // once
    *result = answer;
  });
  return result;
}

// A view of two slots, whose primaries are processes 4 and 5.
inline View ViewOf(uint64_t number) {
  View view;
  view.set_number(number);
  for (const uint32_t process : {4, 5}) view.add_slot()->mutable_primary()->set_process(process);
  return view;
}

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_SERVER_AGREEMENT_DECIDER_CALLS_H_
