#include "common/config/text/config_overrides.h"

#include <memory>
#include <utility>
#include <vector>

#include "absl/status/statusor.h"
#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/match.h"
#include "absl/strings/numbers.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"
#include "absl/strings/str_split.h"
#include "common/base/status_macros.h"
#include "common/config/text/config_text.h"

namespace evenshard {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr int kNoIndex = -1;

// One component of a path, such as "shard[1]": a field, or an element of it, and the message that
// has the field.
struct Step {
  Message* message;
  const FieldDescriptor* field;
  int index = kNoIndex;
};

// Describes the elements that an override can set in `field`, a repeated field of `message` whose
// path is `list`.
std::string ElementsOf(const std::string& list, const Message& message,
                       const FieldDescriptor* field) {
  const int size = message.GetReflection()->FieldSize(message, field);
  if (size > 0) return absl::StrCat(list, "[0] to ", list, "[", size - 1, "]");
  return absl::StrCat("nothing, the list is empty; give the whole list as ", list,
                      field->message_type() == nullptr ? "=[...]" : "=[{...}]");
}

// Resolves one component of a path within `message`. `path` is the path up to and including the
// component.
absl::StatusOr<Step> Resolve(absl::string_view component, const std::string& path,
                             Message* message) {
  const auto error = [&](absl::string_view problem) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": ", problem));
  };
  std::pair<std::string, std::string> parts = absl::StrSplit(component, absl::MaxSplits('[', 1));
  auto& [name, index] = parts;
  Step step = {message, message->GetDescriptor()->FindFieldByName(name)};
  if (step.field == nullptr) return error(UnknownField(*message->GetDescriptor()));
  if (name.size() == component.size()) return step;

  if (!step.field->is_repeated()) return error("is not a list, it takes no index");
  const std::string list = path.substr(0, path.size() - component.size() + name.size());
  // An index like "+1" or "01" is refused: errors look up the override by its path, so a path must
  // have only one spelling.
  if (!absl::SimpleAtoi(index.substr(0, index.size() - 1), &step.index) || step.index < 0 ||
      step.index >= message->GetReflection()->FieldSize(*message, step.field) ||
      index != absl::StrCat(step.index, "]")) {
    return error(absl::StrCat("there is no such element, allowed: ",
                              ElementsOf(list, *message, step.field)));
  }
  return step;
}

// Returns the message that `step`, which is not the last of its path, refers to.
absl::StatusOr<Message*> Enter(const Step& step, const std::string& path) {
  const Reflection* reflection = step.message->GetReflection();
  if (step.field->message_type() == nullptr) {
    return absl::InvalidArgumentError(absl::StrCat(
        path, ": has no fields of its own, allowed as its value: ", AllowedValues(*step.field)));
  }
  if (step.index != kNoIndex) {
    return reflection->MutableRepeatedMessage(step.message, step.field, step.index);
  }
  if (step.field->is_repeated()) {
    return absl::InvalidArgumentError(absl::StrCat(
        path,
        ": is a list and needs an index, allowed: ", ElementsOf(path, *step.message, step.field)));
  }
  return reflection->MutableMessage(step.message, step.field);
}

// Sets the field that `step`, the last of its path, refers to. `outer` is the number of messages
// around `step.message`.
absl::Status Assign(const Step& step, const std::string& parent, int outer, const std::string& path,
                    absl::string_view value) {
  // The value is parsed as the only field of an otherwise empty message of the same type.
  const std::unique_ptr<Message> parsed(step.message->New());
  std::string text(absl::StripAsciiWhitespace(value));
  if (step.field->cpp_type() == FieldDescriptor::CPPTYPE_STRING && !absl::StartsWith(text, "\"") &&
      !absl::StartsWith(text, "'")) {
    text = absl::StrCat("\"", absl::CEscape(text), "\"");
  }
  std::vector<TextProblem> problems =
      ParseText(absl::StrCat(step.field->name(), ": ", text), parsed.get(), nullptr, outer);
  if (!problems.empty()) {
    TextProblem& first = problems.front();
    if (first.field.empty()) {
      first.field = path;
    } else if (!parent.empty()) {
      first.field = absl::StrCat(parent, ".", first.field);
    }
    return absl::InvalidArgumentError(first.ToString());
  }
  const Reflection* reflection = step.message->GetReflection();
  std::vector<const FieldDescriptor*> fields;
  reflection->ListFields(*parsed, &fields);
  const int values = !step.field->is_repeated() ? 1 : reflection->FieldSize(*parsed, step.field);
  if (fields.size() > 1 || (step.index != kNoIndex && values != 1)) {
    return absl::InvalidArgumentError(absl::StrCat(path, ": takes exactly one value"));
  }
  if (step.index == kNoIndex) reflection->ClearField(step.message, step.field);
  step.message->MergeFrom(*parsed);
  if (step.index != kNoIndex) {
    // MergeFrom has appended the new element.
    const int last = reflection->FieldSize(*step.message, step.field) - 1;
    reflection->SwapElements(step.message, step.field, step.index, last);
    reflection->RemoveLast(step.message, step.field);
  }
  return absl::OkStatus();
}

absl::Status ApplyOverride(absl::string_view override, ClusterConfig* config, FieldPlaces* places) {
  const size_t equals = override.find('=');
  const absl::string_view field = absl::StripAsciiWhitespace(override.substr(0, equals));
  if (equals == absl::string_view::npos || field.empty()) {
    return absl::InvalidArgumentError("is not an override, allowed: FIELD=VALUE");
  }
  const std::vector<std::string> components = absl::StrSplit(field, '.');
  Message* message = config;
  std::string parent;
  for (size_t i = 0;; ++i) {
    const std::string path =
        parent.empty() ? components[i] : absl::StrCat(parent, ".", components[i]);
    ASSIGN_OR_RETURN(const Step step, Resolve(components[i], path, message));
    if (i + 1 == components.size()) {
      RETURN_IF_ERROR(Assign(step, parent, static_cast<int>(i), path, override.substr(equals + 1)));
      places->SetOverride(path, override);
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(message, Enter(step, path));
    parent = path;
  }
}

}  // namespace

absl::Status ApplyOverrides(absl::Span<const std::string> overrides, ClusterConfig* config,
                            FieldPlaces* places) {
  std::vector<std::string> problems;
  for (const std::string& override : overrides) {
    const absl::Status status = ApplyOverride(override, config, places);
    if (!status.ok()) problems.push_back(absl::StrCat("--set ", override, ": ", status.message()));
  }
  if (problems.empty()) return absl::OkStatus();
  return absl::InvalidArgumentError(absl::StrJoin(problems, "\n"));
}

}  // namespace evenshard
