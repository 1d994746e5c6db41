#ifndef EVENSHARD_COMMON_BASE_STATUS_MACROS_H_
#define EVENSHARD_COMMON_BASE_STATUS_MACROS_H_

#include <utility>

#include "absl/status/status.h"
#include "absl/status/statusor.h"

// Returns from the enclosing function with the status if it is an error.
//
//   RETURN_IF_ERROR(membership_.Report(rank, incarnation, usage));
#define RETURN_IF_ERROR(expression)                                                  \
  if (absl::Status status_of_expression = (expression); status_of_expression.ok()) { \
  } else                                                                             \
    return status_of_expression

// Assigns the value of an absl::StatusOr, or returns from the enclosing function with its error.
// `target` may declare a variable; one with a comma in its type needs a name for that type.
//
//   ASSIGN_OR_RETURN(const Config config, Config::Load(path, overrides));
#define ASSIGN_OR_RETURN(target, expression) \
  EVENSHARD_ASSIGN_OR_RETURN(EVENSHARD_CONCATENATED(status_or_, __LINE__), target, expression)

#define EVENSHARD_ASSIGN_OR_RETURN(status_or, target, expression) \
  auto status_or = (expression);                                  \
  if (!status_or.ok()) return std::move(status_or).status();      \
  target = *std::move(status_or)
#define EVENSHARD_CONCATENATED(left, right) EVENSHARD_CONCATENATED_EXPANDED(left, right)
#define EVENSHARD_CONCATENATED_EXPANDED(left, right) left##right

#endif  // EVENSHARD_COMMON_BASE_STATUS_MACROS_H_
