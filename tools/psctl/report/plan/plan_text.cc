#include "tools/psctl/report/plan/plan_text.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "tools/psctl/report/plan/plan_report.h"
#include "tools/psctl/report/plan/prediction_text.h"

namespace evenshard {
namespace {

constexpr size_t kHoldsWidth = 48;
constexpr size_t kHoldsShown = 16;

bool HasRates(const PlanReport& report) { return report.shards.front().gbps > 0; }

// Returns "MEMORY_BASED" or "AUTO (STRIPED by rates)".
std::string Title(const PlanReport& report) {
  if (report.scheme == report.partition) return report.scheme;
  return absl::StrCat(report.scheme, " (", report.partition, ")");
}

std::string Plural(int64_t count, absl::string_view noun) {
  return absl::StrCat(FormatCount(count), " ", noun, count == 1 ? "" : "s");
}

std::string Heading(const PlannedConfig& config) {
  const int64_t statistics = config.model().element_count() - config.model().parameter_count();
  return absl::StrCat(
      config.model().name(), " on ", Plural(config.shards(), "shard"), " for ",
      Plural(config.workers(), "worker"), "\n", FormatCount(config.model().parameter_count()),
      " parameters, ",
      statistics == 0 ? "" : absl::StrCat(FormatCount(statistics), " running statistics, "),
      FormatBytes(FloatBytes(config.model().element_count())), ", ",
      Plural(config.plan().chunks().size(), "chunk"), "\nchunks of at most ",
      FormatCount(config.plan_choice().chunk_bytes),
      " B: ", config.plan_choice().chunk_bytes_reason, "\n",
      config.proto().optimizer().kind() == OptimizerConfig::MEAN
          ? "shards keep the mean gradient and no parameters, which the workers have\n"
          : "");
}

// Returns the stretch of layers in which the load is least even, or nothing for one shard.
std::string WorstStretchText(const Model& model, const PlanReport& report) {
  if (report.shards.size() == 1) return "";
  const Stretch& stretch = report.worst_stretch;
  const std::string& first = model.layers()[stretch.first_layer].name;
  const std::string& last = model.layers()[stretch.last_layer].name;
  return absl::StrFormat(
      "worst stretch  shard %d carries %.2f times its share\n%s(of %s, %s)\n", stretch.shard,
      stretch.ratio, kFindingIndent,
      stretch.first_layer == stretch.last_layer ? first : absl::StrCat(first, " .. ", last),
      FormatBytes(FloatBytes(stretch.elements)));
}

// Returns the links that the prediction assumes; the table has those of shards that differ.
std::string Links(const PlannedConfig& config, const PlanReport& report) {
  const double workers = report.worker_link_gbps;
  const bool equal = std::all_of(report.shards.begin(), report.shards.end(),
                                 [&](const ShardLoad& load) { return load.link_gbps == workers; });
  return absl::StrFormat("%s of %g Gb/s%s", equal ? "links" : "workers' links", workers,
                         config.proto().colocated() ? ", shards on workers' hosts" : "");
}

std::string Prediction(const PlannedConfig& config, const PlanReport& report) {
  return PredictionText(config, {.seconds = report.predicted_seconds,
                                 .bound_seconds = report.bound_seconds,
                                 .computes = report.computes,
                                 .device = report.device,
                                 .links = Links(config, report)});
}

// Returns what AUTO weighed, or nothing for other schemes.
std::string Alternatives(const PlanChoice& choice) {
  if (choice.alternatives.empty()) return "";
  Table table({"AUTO weighed", ">predicted", ">times", ""});
  for (size_t i = 0; i < choice.alternatives.size(); ++i) {
    const PlanAlternative& alternative = choice.alternatives[i];
    if (!alternative.refused.empty()) {
      // The rest of the reason, behind a semicolon, is the rule that is broken.
      const std::string reason = alternative.refused.substr(0, alternative.refused.find(';'));
      table.AddRow({alternative.name, "", "", absl::StrCat("refused: ", reason)});
      continue;
    }
    const double factor = alternative.seconds / choice.alternatives[choice.chosen].seconds;
    table.AddRow({alternative.name, FormatSeconds(alternative.seconds),
                  absl::StrFormat("%.2f", factor),
                  static_cast<int>(i) == choice.chosen ? "chosen" : ""});
  }
  return absl::StrCat("\n", table.ToString());
}

// Returns at which links the encodings pay, by what they take on this machine.
std::string Encodings(const PlanReport& report) {
  std::string text;
  for (const EncodedTraffic& encoded : report.encoded) {
    const EncodingCost& cost = encoded.cost;
    absl::StrAppendFormat(&text,
                          "%-15s%s, %.3g bits each, pay on links of up to %.2g Gb/s\n"
                          "%s(coding takes %.2g ns each here, with one thread)\n",
                          encoded.what, encoded.encoding, cost.bits, cost.pays_below_gbps,
                          kFindingIndent, cost.encode_nanoseconds + cost.decode_nanoseconds);
  }
  return text;
}

std::string Findings(const PlannedConfig& config, const PlanReport& report) {
  const ShardLoad& busiest = report.shards[report.bottleneck];
  return absl::StrCat(
      absl::StrFormat("bottleneck     shard %d, %.2f times its load in a balanced plan\n"
                      "%s(%s is %s of it)\n"
                      "busiest link   %s each way per iteration\n",
                      report.bottleneck, report.ratio_to_balanced, kFindingIndent,
                      busiest.largest_layer, FormatPercent(busiest.largest_layer_share),
                      FormatBytes(report.busiest_link_bytes)),
      Encodings(report), WorstStretchText(config.model(), report), Prediction(config, report),
      Alternatives(config.plan_choice()));
}

}  // namespace

std::string PlanText(const std::string& name, const PlannedConfig& config,
                     std::optional<double> link_gbps) {
  const PlanReport report = MakePlanReport(config, link_gbps);
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
  add_row({"total", "", FormatCount(total), FormatBytes(FloatBytes(total)), FormatPercent(1),
           FormatBytes(in), FormatBytes(out), ""},
          "");
  return absl::StrCat(name, ": ", Title(report), "\n", Heading(config), "\n", table.ToString(),
                      "\n", Findings(config, report));
}

std::string PlanComparison(absl::Span<const std::string> names,
                           absl::Span<const PlannedConfig> configs,
                           std::optional<double> link_gbps) {
  std::vector<std::string> blocks;
  std::vector<PlanReport> reports;
  for (size_t i = 0; i < configs.size(); ++i) {
    const PlanReport& report = reports.emplace_back(MakePlanReport(configs[i], link_gbps));
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
    blocks.push_back(absl::StrCat(Title(report), "\n", names[i], "\n", Heading(configs[i]), "\n",
                                  table.ToString(), "\n", Findings(configs[i], report)));
  }
  std::string text = SideBySide(blocks);
  const bool take_time = std::all_of(reports.begin(), reports.end(), [](const PlanReport& report) {
    return report.predicted_seconds > 0;
  });
  if (reports.size() == 2 && take_time) {
    // Their iterations may have other numbers of images.
    const size_t fast =
        reports[1].predicted_images_per_second > reports[0].predicted_images_per_second;
    const size_t slow = 1 - fast;
    const bool are_alike = Title(reports[0]) == Title(reports[1]);
    const auto name = [&](size_t i) { return are_alike ? names[i] : Title(reports[i]); };
    absl::StrAppend(
        &text, absl::StrFormat("\nThe prediction: %s is %.2f times as fast as %s.\n", name(fast),
                               reports[fast].predicted_images_per_second /
                                   reports[slow].predicted_images_per_second,
                               name(slow)));
  }
  return text;
}

}  // namespace evenshard
