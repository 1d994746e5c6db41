#ifndef PS_COMMON_CONFIG_CONFIG_TEXT_H_
#define PS_COMMON_CONFIG_CONFIG_TEXT_H_

#include <google/protobuf/descriptor.h>
#include <google/protobuf/message.h>

#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/config/config_places.h"

namespace ps {

// What is wrong in a text, at which field. `field` is empty where the place
// belongs to none.
struct TextProblem {
  int line = 1;
  std::string field;
  std::string problem;

  std::string ToString() const;  // "field: problem"
};

// How many messages may lie in one another, a bound on everything that walks through them. A
// residual block takes two of them. JoinRequest, which holds a config, has to stay within the
// hundred that protobuf reads.
inline constexpr int kMaxNesting = 64;

// Parses protobuf text format into `message`, which must be empty, and notes in
// `places`, where not null, the line of each field that is set. Returns all unknown
// fields, up to the first place that cannot be read on from; nothing if all is well.
// `outer` is the number of messages around `message`, which count as nesting.
std::vector<TextProblem> ParseText(absl::string_view text, google::protobuf::Message* message,
                                   FieldPlaces* places, int outer = 0);

// "unknown field, allowed: a, b, c".
std::string UnknownField(const google::protobuf::Descriptor& message);

// What a field takes: "SYNC, ASYNC", "a whole number", ...
std::string AllowedValues(const google::protobuf::FieldDescriptor& field);

}  // namespace ps

#endif  // PS_COMMON_CONFIG_CONFIG_TEXT_H_
