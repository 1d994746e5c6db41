#include "experiments/paper_fit.h"

#include <limits>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/config.h"
#include "common/text.h"
#include "experiments/bound.h"
#include "experiments/framing.h"
#include "nlohmann/json.hpp"

namespace ps {
namespace {

constexpr double kLinkGbps = 10;
constexpr int kWorkersPerShard = 2;
struct Measured {
  int workers;
  double ratio;
};
constexpr Measured kFitted = {4, 1.20};
constexpr Measured kPredicted = {8, 1.66};

absl::StatusOr<double> ExchangeSeconds(int workers, int shards, absl::string_view partition) {
  std::string text = absl::StrCat(
      "model { builtin: 'vgg16' } partition { ", partition, " } workers: ", workers,
      " update { policy: SYNC } training { iterations: 1 } compute { backend: EMULATED }"
      " exchange { schedule: SEQUENTIAL }");
  for (int i = 0; i < shards; ++i) absl::StrAppend(&text, " shard { address: 'ps:0' }");
  const absl::StatusOr<Config> config = Config::Parse(text, "the paper's cluster");
  if (!config.ok()) return config.status();

  const double rate = PayloadBytesPerSecond(kLinkGbps, {.on_cable = true});
  const ClusterRates rates = {
      .worker_link = std::vector<double>(workers, rate),
      .shard_link = std::vector<double>(shards, rate),
      .shard_processing = std::vector<double>(shards, std::numeric_limits<double>::infinity()),
      .worker_slowdown = std::vector<double>(workers, 1)};
  return BoundOf(*config, rates, {}).iteration_seconds;
}

absl::StatusOr<PaperFit::Figure> MakeFigure(const Measured& measured) {
  PaperFit::Figure figure;
  figure.workers = measured.workers;
  figure.shards = measured.workers / kWorkersPerShard;
  figure.paper_ratio = measured.ratio;
  const auto layer_based =
      ExchangeSeconds(figure.workers, figure.shards, "scheme: LAYER_BASED placement: GREEDY");
  if (!layer_based.ok()) return layer_based.status();
  const auto memory_based = ExchangeSeconds(figure.workers, figure.shards, "scheme: MEMORY_BASED");
  if (!memory_based.ok()) return memory_based.status();
  figure.layer_based_seconds = *layer_based;
  figure.memory_based_seconds = *memory_based;
  return figure;
}

}  // namespace

absl::StatusOr<PaperFit> FitPaper() {
  PaperFit fit;
  fit.link_gbps = kLinkGbps;
  for (const Measured& measured : {kFitted, kPredicted}) {
    const absl::StatusOr<PaperFit::Figure> figure = MakeFigure(measured);
    if (!figure.ok()) return figure.status();
    fit.figures.push_back(*figure);
  }
  PaperFit::Figure& fitted = fit.figures.front();
  fitted.fitted = true;
  // (outside + layer_based) / (outside + memory_based) = ratio
  fit.outside_seconds =
      (fitted.layer_based_seconds - fitted.paper_ratio * fitted.memory_based_seconds) /
      (fitted.paper_ratio - 1);
  for (PaperFit::Figure& figure : fit.figures) {
    figure.ratio = (fit.outside_seconds + figure.layer_based_seconds) /
                   (fit.outside_seconds + figure.memory_based_seconds);
  }
  return fit;
}

std::string PaperFitText(const PaperFit& fit) {
  Table table({">workers", ">shards", ">layer-based exchange", ">memory-based exchange", ">ratio",
               ">the paper's", ""});
  for (const PaperFit::Figure& figure : fit.figures) {
    table.AddRow({absl::StrCat(figure.workers), absl::StrCat(figure.shards),
                  FormatSeconds(figure.layer_based_seconds),
                  FormatSeconds(figure.memory_based_seconds), absl::StrFormat("%.2f", figure.ratio),
                  absl::StrFormat("%.2f", figure.paper_ratio),
                  figure.fitted ? "fitted" : "predicted"});
  }
  return absl::StrFormat(
      "VGG-16 at %g Gb/s, pushed and then pulled, with %s per iteration outside of it\n\n%s",
      fit.link_gbps, FormatSeconds(fit.outside_seconds), table.ToString());
}

std::string PaperFitJson(const PaperFit& fit) {
  using Json = nlohmann::ordered_json;
  Json figures = Json::array();
  for (const PaperFit::Figure& figure : fit.figures) {
    figures.push_back({{"workers", figure.workers},
                       {"shards", figure.shards},
                       {"layer_based_exchange_seconds", figure.layer_based_seconds},
                       {"memory_based_exchange_seconds", figure.memory_based_seconds},
                       {"ratio", figure.ratio},
                       {"paper_ratio", figure.paper_ratio},
                       {"fitted", figure.fitted}});
  }
  return Json{{"link_gbps", fit.link_gbps},
              {"outside_seconds", fit.outside_seconds},
              {"figures", std::move(figures)}}
             .dump(2) +
         "\n";
}

}  // namespace ps
