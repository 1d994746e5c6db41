#include "tools/psctl/report/usage_text.h"

#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "common/base/text.h"
#include "tools/psctl/report/cluster_report.h"

namespace evenshard {

std::string UsageText(const std::vector<ReportedUsage>& workers) {
  Table table({">worker", ">reported", ">resident", "device", "PCI bus id", ">device memory",
               ">used by all", ">busy", ">images/s", ">exchange wait"});
  for (const ReportedUsage& worker : workers) {
    const bool reported = worker.usage != nullptr;
    const WorkerUsage usage = reported ? *worker.usage : WorkerUsage();
    const auto cell = [](bool present, const std::string& text) { return present ? text : "-"; };
    const bool device = !usage.device().empty();
    table.AddRow(
        {absl::StrCat(worker.worker),
         reported ? absl::StrCat(FormatSeconds(worker.seconds_ago), " ago") : "-",
         cell(reported, FormatBytes(usage.resident_bytes())),
         cell(device, Printable(usage.device(), kCellBytes)),
         cell(device, Printable(usage.pci_bus_id(), kCellBytes)),
         cell(device, FormatBytes(usage.device_bytes())),
         cell(usage.has_device_memory_total_bytes(),
              absl::StrCat(FormatBytes(usage.device_memory_used_bytes()), " of ",
                           FormatBytes(usage.device_memory_total_bytes()))),
         cell(usage.has_device_utilization_percent(),
              absl::StrCat(usage.device_utilization_percent(), "%")),
         cell(usage.has_images_per_second(), absl::StrFormat("%.1f", usage.images_per_second())),
         cell(usage.has_exchange_wait_fraction(), FormatPercent(usage.exchange_wait_fraction()))});
  }
  return table.ToString();
}

}  // namespace evenshard
