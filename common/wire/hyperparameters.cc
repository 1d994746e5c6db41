#include "common/wire/hyperparameters.h"

#include <utility>
#include <vector>

#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenshard {

std::string ToText(const Hyperparameters& given) {
  std::vector<std::string> texts;
  for (const auto& [name, value] :
       {std::pair("the learning rate", given.learning_rate), std::pair("momentum", given.momentum),
        std::pair("beta2", given.beta2), std::pair("weight_decay", given.weight_decay),
        std::pair("epsilon", given.epsilon)}) {
    if (value.has_value()) texts.push_back(absl::StrCat(name, " ", *value));
  }
  return texts.empty() ? "the config's rate" : absl::StrJoin(texts, ", ");
}

}  // namespace evenshard
