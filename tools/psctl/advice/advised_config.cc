#include "tools/psctl/advice/advised_config.h"

#include <filesystem>

#include "absl/strings/str_cat.h"
#include "common/base/text.h"
#include "common/config/config_contract.h"
#include "tools/psctl/advice/advice_text.h"

namespace evenshard {

std::string AdvisedConfig(const AdviceCluster& cluster, const Choice& choice) {
  ClusterConfig config = choice.candidate.config;
  VisitPaths(&config, [](std::string* path) {
    if (!path->empty()) *path = std::filesystem::absolute(*path).lexically_normal().string();
  });
  return absl::StrCat("# Written by psctl advise: ", Printable(NameOf(choice.candidate)),
                      ".\n# For ", Printable(ClusterText(cluster)),
                      ".\n# Predicted: ", FormatRate(choice.images_per_second),
                      " images/s.\n"
                      "#\n"
                      "# Addresses of 127.0.0.1 stand for those that are not known yet.\n",
                      cluster.has_file ? ""
                                       : "# Gradients have the right size and take the device's "
                                         "time: to train for real, set `data` "
                                         "and\n# compute.backend.\n",
                      "\n", config.DebugString());
}

}  // namespace evenshard
