#include "worker/reporting/training_summary.h"

#include <algorithm>
#include <nlohmann/json.hpp>

namespace evenshard {
namespace {

double Median(std::vector<double> values) {
  if (values.empty()) return 0;
  const auto middle = values.begin() + values.size() / 2;
  std::nth_element(values.begin(), middle, values.end());
  if (values.size() % 2 == 1) return *middle;
  return (*middle + *std::max_element(values.begin(), middle)) / 2;
}

}  // namespace

void TrainingSummary::Complete(int64_t batch_size) {
  median_iteration_seconds = Median(iteration_seconds);
  images_per_second = seconds > 0 ? iterations * batch_size / seconds : 0;
}

std::string TrainingSummary::ToJson() const {
  nlohmann::ordered_json json = {{"iterations", iterations},
                                 {"skipped_iterations", skipped_iterations},
                                 {"median_iteration_seconds", median_iteration_seconds},
                                 {"began", absl::ToDoubleSeconds(began - absl::UnixEpoch())},
                                 {"seconds", seconds},
                                 {"images_per_second", images_per_second},
                                 {"compute_seconds", compute_seconds},
                                 {"exchange_wait_seconds", exchange_wait_seconds},
                                 {"final_loss", final_loss},  // null if it is not finite
                                 {"pushes", traffic.pushes},
                                 {"bytes_out", traffic.bytes_out},
                                 {"bytes_in", traffic.bytes_in}};
  if (final_accuracy.has_value()) json["final_accuracy"] = *final_accuracy;
  json["evaluations"] = nlohmann::ordered_json::array();
  for (const Evaluation& each : evaluations) {
    json["evaluations"].push_back(
        {{"iterations", each.iterations}, {"seconds", each.seconds}, {"accuracy", each.accuracy}});
  }
  json["iteration_seconds"] = iteration_seconds;
  return json.dump() + "\n";
}

}  // namespace evenshard
