#include "tools/psctl/plan_report.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "common/config/shard_rates.h"
#include "common/wire/encoding.h"
#include "nlohmann/json.hpp"

namespace ps {
namespace {

constexpr size_t kHoldsWidth = 48;
constexpr size_t kHoldsShown = 16;
constexpr size_t kShortestRange = 3;

int64_t Bytes(int64_t parameters) { return parameters * static_cast<int64_t>(sizeof(float)); }

int64_t GradientBytes(const Config& config, int64_t parameters) {
  return EncodedBytes(config.proto().exchange().gradient_encoding(), parameters);
}

int64_t ParameterBytes(const Config& config, int64_t parameters) {
  return EncodedBytes(config.proto().exchange().parameter_encoding(), parameters);
}

std::string SchemeName(const Partition& partition) {
  if (partition.scheme() == Partition::MEMORY_BASED) return "memory-based";
  if (partition.scheme() == Partition::STRIPED) return "striped";
  if (partition.scheme() == Partition::AUTO) return "auto";
  return absl::StrCat("layer-based, ",
                      absl::AsciiStrToLower(Partition::Placement_Name(partition.placement())));
}

std::string SliceName(const Tensor& tensor, const Slice& slice) {
  if (slice.size == tensor.size) return tensor.name;
  return absl::StrCat(tensor.name, "[", FormatCount(slice.begin), ":",
                      FormatCount(slice.begin + slice.size), ")");
}

// Returns ShardLoad::holds.
std::vector<std::string> Holds(const Model& model, const Plan& plan, int shard) {
  std::vector<Slice> slices;
  for (const Slice& slice : plan.slices()) {
    if (slice.shard == shard) slices.push_back(slice);
  }
  std::vector<std::string> holds;
  std::vector<std::string> run;  // whole layers in a row
  const auto end_run = [&] {
    if (run.size() >= kShortestRange) {
      holds.push_back(absl::StrCat(run.front(), " .. ", run.back()));
    } else {
      holds.insert(holds.end(), run.begin(), run.end());
    }
    run.clear();
  };
  for (const Layer& layer : model.layers()) {
    if (layer.tensor_count == 0) continue;
    int64_t owned = 0;
    std::vector<std::string> parts;
    for (const Slice& slice : slices) {
      if (slice.tensor < layer.first_tensor ||
          slice.tensor >= layer.first_tensor + layer.tensor_count) {
        continue;
      }
      owned += slice.size;
      parts.push_back(SliceName(model.tensors()[slice.tensor], slice));
    }
    if (owned == layer.elements) {
      run.push_back(layer.name);
    } else {
      end_run();
      holds.insert(holds.end(), parts.begin(), parts.end());
    }
  }
  end_run();
  return holds;
}

// Returns the layer with the most parameters on the shard, and how many it has there.
std::pair<std::string, int64_t> LargestLayer(const Model& model, const Plan& plan, int shard) {
  std::vector<int64_t> owned(model.tensors().size());
  for (const Slice& slice : plan.slices()) {
    if (slice.shard == shard) owned[slice.tensor] += slice.size;
  }
  std::pair<std::string, int64_t> largest;
  for (const Layer& layer : model.layers()) {
    int64_t sum = 0;
    for (int i = 0; i < layer.tensor_count; ++i) sum += owned[layer.first_tensor + i];
    if (sum > largest.second) largest = {layer.name, sum};
  }
  return largest;
}

bool HasRates(const PlanReport& report) { return report.shards.front().gbps > 0; }

double LeastSeconds(const PlanReport& report, double gbps) {
  const ShardLoad& shard = report.shards[report.bottleneck];
  return 8e-9 * std::max(report.worker_bytes / gbps,
                         shard.bytes_each_way / (HasRates(report) ? shard.gbps : gbps));
}

std::string Plural(int64_t count, absl::string_view noun) {
  return absl::StrCat(FormatCount(count), " ", noun, count == 1 ? "" : "s");
}

std::string Heading(const Config& config) {
  const int64_t statistics = config.model().element_count() - config.model().parameter_count();
  return absl::StrCat(
      config.model().name(), " on ", Plural(config.shards(), "shard"), " for ",
      Plural(config.workers(), "worker"), "\n", FormatCount(config.model().parameter_count()),
      " parameters, ",
      statistics == 0 ? "" : absl::StrCat(FormatCount(statistics), " running statistics, "),
      FormatBytes(Bytes(config.model().element_count())), ", ",
      Plural(config.plan().chunks().size(), "chunk"), "\nchunks of at most ",
      FormatCount(config.proto().limits().chunk_bytes()), " B: ", config.plan_choice().chunk_bytes_reason,
      "\n");
}

std::string Prediction(const PlanReport& report, double gbps) {
  const ShardLoad& busiest = report.shards[report.bottleneck];
  return absl::StrFormat(
      "bottleneck     shard %d, %.2f times its load in a balanced plan\n"
      "               (%s is %s of it)\n"
      "busiest link   %s each way per iteration\n"
      "at %g Gb/s     %s per iteration or more%s\n",
      report.bottleneck, report.ratio_to_balanced, busiest.largest_layer,
      FormatPercent(busiest.largest_layer_share), FormatBytes(report.busiest_link_bytes), gbps,
      FormatSeconds(LeastSeconds(report, gbps)),
      HasRates(report) ? "\n               (shards at their own rates)" : "");
}

}  // namespace

PlanReport MakePlanReport(const Config& config) {
  const Model& model = config.model();
  const Plan& plan = config.plan();
  PlanReport report;
  report.scheme = SchemeName(config.proto().partition());
  report.worker_bytes = report.busiest_link_bytes = std::max(
      GradientBytes(config, model.element_count()), ParameterBytes(config, model.element_count()));
  const std::vector<double> rates = ShardRates(config.proto());
  // Returns the time for which the shard is busy, in any unit.
  const auto load_for_rate = [&](int shard) {
    return plan.shard_parameters(shard) / (rates.empty() ? 1 : rates[shard]);
  };
  for (int shard = 0; shard < plan.shards(); ++shard) {
    ShardLoad load;
    load.parameters = plan.shard_parameters(shard);
    load.bytes = Bytes(load.parameters);
    load.share = static_cast<double>(load.parameters) / model.element_count();
    load.bytes_in = config.workers() * GradientBytes(config, load.parameters);
    load.bytes_out = config.workers() * ParameterBytes(config, load.parameters);
    load.bytes_each_way = std::max(load.bytes_in, load.bytes_out);
    if (!rates.empty()) load.gbps = rates[shard];
    report.busiest_link_bytes = std::max(report.busiest_link_bytes, load.bytes_each_way);
    load.holds = Holds(model, plan, shard);
    const auto [layer, parameters] = LargestLayer(model, plan, shard);
    load.largest_layer = layer;
    load.largest_layer_share = static_cast<double>(parameters) / load.parameters;
    if (load_for_rate(shard) > load_for_rate(report.bottleneck)) report.bottleneck = shard;
    report.shards.push_back(std::move(load));
  }
  const double rate_of_all =
      rates.empty() ? plan.shards() : std::accumulate(rates.begin(), rates.end(), 0.0);
  report.ratio_to_balanced =
      load_for_rate(report.bottleneck) / (model.element_count() / rate_of_all);
  return report;
}

std::string PlanText(const std::string& name, const Config& config, double gbps) {
  const PlanReport report = MakePlanReport(config);
  std::vector<std::string> headings = {">shard", "address",       ">parameters",    ">bytes",
                                       ">share", ">in/iteration", ">out/iteration", "holds"};
  if (HasRates(report)) headings.insert(headings.begin() + 2, ">Gb/s");
  Table table(headings);
  const auto add_row = [&](std::vector<std::string> cells, const std::string& rate) {
    if (HasRates(report)) cells.insert(cells.begin() + 2, rate);
    table.AddRow(std::move(cells));
  };
  int64_t in = 0, out = 0;
  for (size_t i = 0; i < report.shards.size(); ++i) {
    const ShardLoad& load = report.shards[i];
    std::vector<std::string> holds = load.holds;
    if (holds.size() > kHoldsShown) {
      const size_t more = holds.size() - kHoldsShown / 2;
      holds.resize(kHoldsShown / 2);
      holds.push_back(absl::StrCat(more, " more (all with --format=json)"));
    }
    in += load.bytes_in;
    out += load.bytes_out;
    add_row({absl::StrCat(i), config.address(i), FormatCount(load.parameters),
             FormatBytes(load.bytes), FormatPercent(load.share), FormatBytes(load.bytes_in),
             FormatBytes(load.bytes_out), WrapItems(holds, kHoldsWidth)},
            absl::StrCat(load.gbps));
  }
  const int64_t total = config.model().element_count();
  add_row({"total", "", FormatCount(total), FormatBytes(Bytes(total)), FormatPercent(1),
           FormatBytes(in), FormatBytes(out), ""},
          "");
  return absl::StrCat(name, ": ", report.scheme, "\n", Heading(config), "\n", table.ToString(),
                      "\n", Prediction(report, gbps));
}

std::string PlanComparison(absl::Span<const std::string> names, absl::Span<const Config> configs,
                           double gbps) {
  std::vector<std::string> blocks;
  std::vector<PlanReport> reports;
  for (size_t i = 0; i < configs.size(); ++i) {
    const PlanReport& report = reports.emplace_back(MakePlanReport(configs[i]));
    std::vector<std::string> headings = {">shard", ">parameters", ">share", ">each way/iter.",
                                         "mostly"};
    if (HasRates(report)) headings.insert(headings.begin() + 1, ">Gb/s");
    Table table(headings);
    for (size_t shard = 0; shard < report.shards.size(); ++shard) {
      const ShardLoad& load = report.shards[shard];
      std::vector<std::string> cells = {
          absl::StrCat(shard), FormatCount(load.parameters), FormatPercent(load.share),
          FormatBytes(load.bytes_each_way),
          absl::StrCat(load.largest_layer, " ", FormatPercent(load.largest_layer_share))};
      if (HasRates(report)) cells.insert(cells.begin() + 1, absl::StrCat(load.gbps));
      table.AddRow(std::move(cells));
    }
    blocks.push_back(absl::StrCat(absl::AsciiStrToUpper(report.scheme), "\n", names[i], "\n",
                                  Heading(configs[i]), "\n", table.ToString(), "\n",
                                  Prediction(report, gbps)));
  }
  std::string text = SideBySide(blocks);
  if (reports.size() == 2) {
    const auto [fast, slow] =
        std::minmax(reports[0], reports[1], [gbps](const auto& a, const auto& b) {
          return LeastSeconds(a, gbps) < LeastSeconds(b, gbps);
        });
    absl::StrAppend(
        &text, absl::StrFormat("\n%s exchanges at most %.2f times as fast as %s.\n", fast.scheme,
                               LeastSeconds(slow, gbps) / LeastSeconds(fast, gbps), slow.scheme));
  }
  return text;
}

std::string PlanJson(absl::Span<const std::string> names, absl::Span<const Config> configs,
                     double gbps) {
  using Json = nlohmann::ordered_json;
  Json plans = Json::array();
  for (size_t i = 0; i < configs.size(); ++i) {
    const Config& config = configs[i];
    const PlanReport report = MakePlanReport(config);
    Json shards = Json::array();
    for (int shard = 0; shard < config.shards(); ++shard) {
      const ShardLoad& load = report.shards[shard];
      Json slices = Json::array();
      for (const Slice& slice : config.plan().slices()) {
        if (slice.shard != shard) continue;
        slices.push_back({{"tensor", config.model().tensors()[slice.tensor].name},
                          {"begin", slice.begin},
                          {"size", slice.size}});
      }
      shards.push_back({{"shard", shard},
                        {"address", config.address(shard)},
                        {"gbps", load.gbps > 0 ? Json(load.gbps) : Json()},
                        {"parameters", load.parameters},
                        {"bytes", load.bytes},
                        {"share", load.share},
                        {"bytes_in_per_iteration", load.bytes_in},
                        {"bytes_out_per_iteration", load.bytes_out},
                        {"slices", std::move(slices)}});
    }
    plans.push_back({{"config", names[i]},
                     {"model", config.model().name()},
                     {"scheme", report.scheme},
                     {"workers", config.workers()},
                     {"parameters", config.model().parameter_count()},
                     {"bytes", Bytes(config.model().element_count())},
                     {"chunks", config.plan().chunks().size()},
                     {"chunk_bytes", config.proto().limits().chunk_bytes()},
                     {"chunk_bytes_reason", config.plan_choice().chunk_bytes_reason},
                     {"plan_version", kPlanVersion},
                     {"plan_fingerprint", absl::StrFormat("%016x", config.plan().fingerprint())},
                     {"config_fingerprint", absl::StrFormat("%016x", config.fingerprint())},
                     {"bottleneck_shard", report.bottleneck},
                     {"ratio_to_balanced", report.ratio_to_balanced},
                     {"busiest_link_bytes_each_way", report.busiest_link_bytes},
                     {"link_gbps", gbps},
                     {"least_seconds_per_iteration", LeastSeconds(report, gbps)},
                     {"shards", std::move(shards)}});
  }
  // Names come from the config. Bytes that are not UTF-8 are replaced; otherwise dump() would
  // throw.
  return Json{{"plans", std::move(plans)}}.dump(2, ' ', false, Json::error_handler_t::replace) +
         "\n";
}

}  // namespace ps
