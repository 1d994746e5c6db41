#include "tools/psctl/report/checkpoints_report.h"

#include <algorithm>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/status_macros.h"
#include "common/base/text.h"
#include "common/checkpoint/folder_owner.h"
#include "nlohmann/json.hpp"

namespace evenshard {
namespace {

using Json = nlohmann::ordered_json;

absl::string_view StateName(CheckpointInfo::State state) {
  switch (state) {
    case CheckpointInfo::State::kComplete:
      return "complete";
    case CheckpointInfo::State::kIncomplete:
      return "incomplete";
    case CheckpointInfo::State::kDamaged:
      return "damaged";
  }
  return "";
}

std::string Hex(uint64_t value) { return absl::StrFormat("%016x", value); }

}  // namespace

bool CheckpointsReport::has_damaged() const {
  return std::any_of(checkpoints.begin(), checkpoints.end(), [](const CheckpointInfo& info) {
    return info.state == CheckpointInfo::State::kDamaged;
  });
}

absl::StatusOr<CheckpointsReport> MakeCheckpointsReport(Storage* storage, const std::string& folder,
                                                        Verification verification, absl::Time now) {
  // CheckpointFolder takes a folder that is missing for an empty one.
  RETURN_IF_ERROR(storage->ListFolder(folder).status());
  CheckpointsReport report{.folder = folder, .now = now, .run = std::nullopt, .checkpoints = {}};
  if (const absl::StatusOr<uint64_t> run = OwnerOf(storage, folder); run.ok()) report.run = *run;
  ASSIGN_OR_RETURN(report.checkpoints, CheckpointFolder(storage, folder).List(verification));
  return report;
}

std::string CheckpointsText(const CheckpointsReport& report) {
  if (report.checkpoints.empty()) return absl::StrCat("no checkpoints in ", report.folder, "\n");
  Table table({">generation", ">iteration", ">age", ">bytes", "model", "state"});
  for (const CheckpointInfo& info : report.checkpoints) {
    std::string state(StateName(info.state));
    if (!info.why.empty()) absl::StrAppend(&state, ": ", Printable(info.why));
    table.AddRow({absl::StrCat(info.id.generation), absl::StrCat(info.id.iteration),
                  info.facts.has_value()
                      ? FormatSeconds(absl::ToDoubleSeconds(report.now - info.written))
                      : "-",
                  FormatBytes(static_cast<double>(info.bytes)),
                  info.facts.has_value() ? Printable(info.facts->model) : "-", std::move(state)});
  }
  return table.ToString();
}

std::string CheckpointsJson(const CheckpointsReport& report) {
  Json checkpoints = Json::array();
  for (const CheckpointInfo& info : report.checkpoints) {
    Json json = {{"name", info.id.ToString()},
                 {"generation", info.id.generation},
                 {"iteration", info.id.iteration},
                 {"state", StateName(info.state)},
                 {"bytes", info.bytes}};
    if (!info.why.empty()) json["why"] = info.why;
    if (info.facts.has_value()) {
      json["age_seconds"] = absl::ToDoubleSeconds(report.now - info.written);
      json["run"] = Hex(info.facts->run);
      json["model"] = info.facts->model;
      json["settings"] = info.facts->settings;
      json["shards"] = info.facts->shards;
      json["workers"] = info.facts->workers;
    }
    checkpoints.push_back(std::move(json));
  }
  const Json json = {{"folder", report.folder},
                     {"run", report.run.has_value() ? Json(Hex(*report.run)) : Json()},
                     {"checkpoints", std::move(checkpoints)}};
  return json.dump(2, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace evenshard
