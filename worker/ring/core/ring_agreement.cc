#include "worker/ring/core/ring_agreement.h"

#include <bit>
#include <optional>
#include <string>

#include "absl/strings/str_cat.h"
#include "common/base/error_kind.h"
#include "common/base/hash.h"

namespace evenshard {

uint64_t AgreementOn(const ExchangeKind& kind) {
  if (!kind.assigned.has_value() && kind.hyperparameters.empty()) return 0;
  std::string text = kind.assigned.has_value() ? "assigned;" : "trained;";
  for (const Hyperparameters& of_tensor : kind.hyperparameters) {
    for (const std::optional<float>& number :
         {of_tensor.learning_rate, of_tensor.momentum, of_tensor.beta2, of_tensor.weight_decay,
          of_tensor.epsilon}) {
      if (number.has_value()) absl::StrAppend(&text, std::bit_cast<uint32_t>(*number));
      text.push_back(';');
    }
  }
  return Fnv1a64(text);
}

absl::Status CheckAgreement(const GradientHeader& received, absl::string_view sender,
                            const RingActions& own, int rank, absl::string_view tensor,
                            uint64_t iteration) {
  if (received.base_version == own.agreement) return absl::OkStatus();
  std::string difference;
  if (received.assigned.has_value() != own.assigns) {
    difference = own.assigns
                     ? absl::StrCat(sender, " trains, and worker ", rank, " assigns values")
                     : absl::StrCat(sender, " assigns values, and worker ", rank, " trains");
  } else if (received.hyperparameters != own.hyperparameters) {
    difference = absl::StrCat(sender, " gives ", tensor, " ", ToText(received.hyperparameters),
                              ", and worker ", rank, " ", ToText(own.hyperparameters));
  } else {
    difference = absl::StrCat(sender,
                              " gives some tensor another learning rate, or another number "
                              "of the rule, than worker ",
                              rank);
  }
  return WithKind(ErrorDetail::RUN_FAILED,
                  absl::InvalidArgumentError(absl::StrCat("iteration ", iteration, ": ", difference,
                                                          "; allowed: the same in all workers")));
}

}  // namespace evenshard
