#include "tools/psctl/report/view_report.h"

#include <cstdint>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/time/time.h"
#include "common/base/text.h"
#include "common/control/view/worker_set.h"
#include "common/reader/process_calls.h"
#include "google/protobuf/util/json_util.h"
#include "nlohmann/json.hpp"

namespace evenshard {
namespace {

constexpr size_t kCellBytes = 100;

std::string Process(const ProcessId& id) {
  return absl::StrCat("ps ", id.process(), " (", Printable(id.address(), kCellBytes), ")");
}

std::string Doing(const SlotView& slot) {
  if (!slot.has_primary()) return "lost";
  if (slot.handing_over()) return "hands over to its replica";
  if (slot.has_replica() && !slot.replica_is_complete()) return "fills its replica";
  return "";
}

std::string SlotTable(const View& view) {
  Table table({">slot", "primary", "replica", ""});
  for (int s = 0; s < view.slot_size(); ++s) {
    const SlotView& slot = view.slot(s);
    table.AddRow({absl::StrCat(s), slot.has_primary() ? Process(slot.primary()) : "-",
                  slot.has_replica() ? Process(slot.replica()) : "-", Doing(slot)});
  }
  return table.ToString();
}

std::string WorkerTable(const View& view) {
  Table table({">worker", "state"});
  for (int r = 0; r < view.worker_size(); ++r) {
    table.AddRow(
        {absl::StrCat(r), absl::AsciiStrToLower(WorkerView::State_Name(view.worker(r).state()))});
  }
  return table.ToString();
}

std::string WorkerSetText(const View& view) {
  std::string text;
  for (const WorkerSet& worker_set : view.worker_set()) {
    const std::string ranks =
        FormatRanks(absl::MakeConstSpan(worker_set.rank().data(), worker_set.rank_size()));
    absl::StrAppend(&text, "from iteration ",
                    worker_set.from_iteration() - worker_set.assignments(), " on, workers ", ranks,
                    " count\n");
  }
  if (view.worker_set_changes())
    absl::StrAppend(&text, "the next view changes which workers count\n");
  return text;
}

std::string EventText(const View& view) {
  if (view.events() == 0) return "";
  std::string text = absl::StrCat(
      "\n", view.events() == 1 ? "1 event" : absl::StrCat(view.events(), " events"), " so far",
      view.event_size() < static_cast<int64_t>(view.events()) ? ", the latest:\n" : ":\n");
  for (const RecoveryEvent& event : view.event()) {
    absl::StrAppend(
        &text, "  ",
        absl::FormatTime("%H:%M:%S", absl::UnixEpoch() + absl::Seconds(event.unix_seconds()),
                         absl::UTCTimeZone()),
        " UTC  ", Printable(event.what()),
        event.seconds() > 0 ? absl::StrCat(" (held up ", FormatSeconds(event.seconds()), ")") : "",
        "\n");
  }
  return text;
}

}  // namespace

std::string ViewText(const ViewReport& report) {
  const View* view = NewestView(report);
  std::string text;
  if (view != nullptr && view->number() == 0) {
    text = "no views: the run has no recovery, or has not begun\n";
  } else if (view != nullptr) {
    text = absl::StrCat("view ", view->number(), ", generation ", view->generation(), " from ",
                        view->checkpoint().empty() ? "the initial parameters"
                                                   : Printable(view->checkpoint(), kCellBytes),
                        "\n\n", SlotTable(*view), "\n", WorkerTable(*view), "\n",
                        WorkerSetText(*view), EventText(*view));
  }
  for (size_t i = 0; i < report.size(); ++i) {
    if (!report[i].ok()) {
      absl::StrAppend(&text, "ps ", i, " does not answer: ", report[i].status().message(), "\n");
    } else if (report[i]->number() != view->number()) {
      absl::StrAppend(&text, "ps ", i, " follows view ", report[i]->number(), "\n");
    }
  }
  return text;
}

std::string ViewJson(const ViewReport& report) {
  using Json = nlohmann::ordered_json;
  google::protobuf::util::JsonPrintOptions options;
  options.always_print_primitive_fields = true;
  options.preserve_proto_field_names = true;
  Json processes = Json::array();
  for (size_t i = 0; i < report.size(); ++i) {
    Json entry = {{"process", i}};
    if (report[i].ok()) {
      entry["view"] = std::to_string(report[i]->number());
    } else {
      entry["error"] = std::string(report[i].status().message());
    }
    processes.push_back(std::move(entry));
  }
  Json view = nullptr;
  std::string text;
  if (const View* newest = NewestView(report);
      newest != nullptr &&
      google::protobuf::util::MessageToJsonString(*newest, &text, options).ok()) {
    view = Json::parse(text, nullptr, /*allow_exceptions=*/false);
  }
  const Json json = {{"view", std::move(view)}, {"processes", std::move(processes)}};
  return json.dump(2, ' ', /*ensure_ascii=*/true, Json::error_handler_t::replace) + "\n";
}

}  // namespace evenshard
