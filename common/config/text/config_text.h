#ifndef EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_TEXT_H_
#define EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_TEXT_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/config/text/config_places.h"

namespace evenshard {

// A problem in a text.
struct TextProblem {
  int line = 1;
  std::string field;  // the path of the field that has the problem; empty if no field has it
  std::string problem;

  std::string ToString() const;  // "field: problem"
};

// How deeply messages may be nested. This bounds the recursion of everything that walks through a
// config. A residual block takes two levels. JoinRequest, which contains a config, must not exceed
// the 100 levels that protobuf parses.
inline constexpr int kMaxNesting = 64;

// Parses protobuf text format into `message`, which must be empty. Records the line of each field
// that is set in `places`, unless it is null. Returns the unknown fields, of which only the
// first ones are named and the others are counted, and the first syntax error, where parsing ends.
// Returns no problems if the text is valid. `outer` is the number of messages around `message`;
// they count towards the nesting.
std::vector<TextProblem> ParseText(absl::string_view text, google::protobuf::Message* message,
                                   FieldPlaces* places, int outer = 0);

// Returns "unknown field, allowed: " and the names of the message's fields.
std::string UnknownField(const google::protobuf::Descriptor& message);

// Describes the values of a field, such as "SYNC, ASYNC" or "a whole number of 32 bits".
std::string AllowedValues(const google::protobuf::FieldDescriptor& field);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_CONFIG_TEXT_CONFIG_TEXT_H_
