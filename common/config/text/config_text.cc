#include "common/config/text/config_text.h"

#include <google/protobuf/io/tokenizer.h>
#include <google/protobuf/io/zero_copy_stream_impl_lite.h>
#include <google/protobuf/text_format.h>

#include <map>
#include <tuple>
#include <utility>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_join.h"

namespace evenshard {
namespace {

using google::protobuf::Descriptor;
using google::protobuf::EnumDescriptor;
using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::TextFormat;
using google::protobuf::io::ArrayInputStream;
using google::protobuf::io::ErrorCollector;
using google::protobuf::io::Tokenizer;

constexpr char kEnd[] = "the end of the text";
constexpr char kTooDeep[] = "Message is too deep";  // begins protobuf's error about nesting

// Further unknown fields are only counted, because each one that is reported costs a pass over the
// text. A line that counts them follows the last one.
constexpr size_t kMaxUnknownFields = 20;

class IgnoreErrors : public ErrorCollector {
 public:
  void AddError(int, int, const std::string&) override {}
};

// Finds the field that an error is about. protobuf reports an error's line and column, but not its
// field, so this reads the tokens up to that place again and keeps track of the open messages.
class FieldFinder {
 public:
  FieldFinder(absl::string_view text, const Descriptor* root, int line, int column) {
    messages_.push_back({root, "", {}});
    ArrayInputStream input(text.data(), static_cast<int>(text.size()));
    IgnoreErrors ignore;
    Tokenizer tokenizer(&input, &ignore);
    tokenizer.set_comment_style(Tokenizer::SH_COMMENT_STYLE);
    while (tokenizer.Next()) {
      const Tokenizer::Token& token = tokenizer.current();
      if (std::tie(token.line, token.column) >= std::tie(line, column)) break;
      Take(token);
    }
    at_ = tokenizer.current().text;
    if (at_ == "-" && tokenizer.Next()) at_ += tokenizer.current().text;
    if (Before(1) == "-") {
      at_ = absl::StrCat("-", at_);
      tokens_.pop_back();
    }
  }

  // Returns the problem to report instead of protobuf's `message`.
  TextProblem Explain(int line, const std::string& message) const {
    const auto& [descriptor, path, counts] = messages_.back();
    if (descriptor == nullptr) return {line, path, message};
    // The place is either that of the value, or the one after a value that protobuf did not accept.
    const bool at_value = Before(1) == ":";
    const std::string name(Before(at_value ? 2 : Before(2) == ":" ? 3 : 1));
    const std::string here = path.empty() ? name : absl::StrCat(path, ".", name);
    const FieldDescriptor* field = descriptor->FindFieldByName(name);
    if (at_value || Before(2) == ":") {
      if (field == nullptr) return {line, here, UnknownField(*descriptor)};
      const std::string value(at_value ? at_ : Before(1));
      if (!at_value && Understood(*field, value)) return {line, path, message};
      return {
          line, here,
          absl::StrCat("is ", value.empty() ? kEnd : value, ", allowed: ", AllowedValues(*field))};
    }
    if (field != nullptr) return {line, here, message};
    if (!last_is_name_) return {line, path, message};
    return {line, here, UnknownField(*descriptor)};
  }

 private:
  struct OpenMessage {
    const Descriptor* descriptor;  // null if the message's type is unknown
    std::string path;
    std::map<std::string, int> counts;  // the elements so far of each repeated field
  };

  void Take(const Tokenizer::Token& token) {
    last_is_name_ = token.type == Tokenizer::TYPE_IDENTIFIER;
    if (last_is_name_) name_ = token.text;
    if (token.text == "{" || token.text == "<") Open();
    if ((token.text == "}" || token.text == ">") && messages_.size() > 1) {
      // The next message of a list has the same name.
      name_ = names_.back();
      names_.pop_back();
      messages_.pop_back();
    }
    tokens_.push_back(token.text);
  }

  void Open() {
    OpenMessage& outer = messages_.back();
    OpenMessage inner = {
        nullptr, absl::StrCat(outer.path, outer.path.empty() ? "" : ".", name_), {}};
    if (outer.descriptor != nullptr) {
      if (const FieldDescriptor* field = outer.descriptor->FindFieldByName(name_)) {
        inner.descriptor = field->message_type();
        if (field->is_repeated()) absl::StrAppend(&inner.path, "[", outer.counts[name_]++, "]");
      }
    }
    names_.push_back(name_);
    messages_.push_back(std::move(inner));
  }

  // Returns the n-th token before the place, or "" if there is none.
  absl::string_view Before(size_t n) const {
    return n <= tokens_.size() ? absl::string_view(tokens_[tokens_.size() - n])
                               : absl::string_view();
  }

  static bool Understood(const FieldDescriptor& field, const std::string& value) {
    if (field.enum_type() != nullptr) return field.enum_type()->FindValueByName(value) != nullptr;
    // protobuf accepts more spellings of true and false than AllowedValues lists.
    if (field.type() == FieldDescriptor::TYPE_BOOL) {
      return absl::StrContains(" true True t 1 false False f 0 ", absl::StrCat(" ", value, " "));
    }
    return true;
  }

  std::vector<OpenMessage> messages_;
  std::vector<std::string> names_;  // the names of messages_, except the first, which has none
  std::vector<std::string> tokens_;
  std::string name_;  // the latest identifier, which a "{" makes the name of a message
  bool last_is_name_ = false;
  std::string at_;  // the token at the place
};

// Converts protobuf's errors and warnings into problems.
class Collector : public ErrorCollector {
 public:
  Collector(absl::string_view text, const Descriptor* root) : text_(text), root_(root) {}

  void AddError(int line, int column, const std::string& message) override {
    if (failed_) return;  // later errors are consequences of the first one
    failed_ = true;
    if (absl::StartsWith(message, kTooDeep)) {
      problems_.push_back({std::max(line, 0) + 1, "",
                           absl::StrCat("messages are nested too deep, allowed: ", kMaxNesting,
                                        " within one another")});
      return;
    }
    // protobuf's name for the end of the text is an empty string.
    Add(line, column, absl::EndsWith(message, ": ") ? message + kEnd : message);
  }
  // Called for each unknown field.
  void AddWarning(int line, int column, const std::string& message) override {
    if (++unknown_fields_ <= kMaxUnknownFields) {
      Add(line, column, message);
      return;
    }
    if (unknown_fields_ == kMaxUnknownFields + 1) {
      count_ = problems_.size();
      problems_.push_back({std::max(line, 0) + 1, "", ""});
    }
    problems_[count_].problem =
        absl::StrCat("unknown fields from here on: ", unknown_fields_ - kMaxUnknownFields);
  }

  std::vector<TextProblem>& problems() { return problems_; }

 private:
  void Add(int line, int column, const std::string& message) {
    problems_.push_back(
        FieldFinder(text_, root_, line, column).Explain(std::max(line, 0) + 1, message));
  }

  const absl::string_view text_;
  const Descriptor* const root_;
  bool failed_ = false;
  size_t unknown_fields_ = 0;
  size_t count_ = 0;  // the index of the problem that counts those that are not reported
  std::vector<TextProblem> problems_;
};

void NotePlaces(const Message& message, const TextFormat::ParseInfoTree& tree,
                const std::string& path, FieldPlaces* places) {
  std::vector<const FieldDescriptor*> fields;
  message.GetReflection()->ListFields(message, &fields);
  for (const FieldDescriptor* field : fields) {
    const std::string name = path.empty() ? field->name() : absl::StrCat(path, ".", field->name());
    const int count = field->is_repeated() ? message.GetReflection()->FieldSize(message, field) : 1;
    for (int i = 0; i < count; ++i) {
      const int index = field->is_repeated() ? i : -1;
      const std::string element = field->is_repeated() ? absl::StrCat(name, "[", i, "]") : name;
      const int line = tree.GetLocation(field, index).line;
      // All elements of a list in brackets have the same place.
      if (line >= 0) places->SetLine(element, line + 1);
      if (line >= 0 && i == 0) places->SetLine(name, line + 1);
      if (field->message_type() == nullptr) continue;
      if (const TextFormat::ParseInfoTree* nested = tree.GetTreeForNested(field, index)) {
        NotePlaces(field->is_repeated()
                       ? message.GetReflection()->GetRepeatedMessage(message, field, i)
                       : message.GetReflection()->GetMessage(message, field),
                   *nested, element, places);
      }
    }
  }
}

}  // namespace

std::string TextProblem::ToString() const {
  return field.empty() ? problem : absl::StrCat(field, ": ", problem);
}

std::vector<TextProblem> ParseText(absl::string_view text, Message* message, FieldPlaces* places,
                                   int outer) {
  ArrayInputStream input(text.data(), static_cast<int>(text.size()));
  Collector collector(text, message->GetDescriptor());
  TextFormat::ParseInfoTree tree;
  TextFormat::Parser parser;
  parser.RecordErrorsTo(&collector);
  parser.WriteLocationsTo(&tree);
  // Unknown fields become warnings, so that the parser continues and finds all of them.
  parser.AllowUnknownField(true);
  // The limit also applies to the unknown messages and lists that the parser skips.
  parser.SetRecursionLimit(kMaxNesting - outer);
  parser.Parse(&input, message);
  if (places != nullptr) NotePlaces(*message, tree, "", places);
  return std::move(collector.problems());
}

std::string UnknownField(const Descriptor& message) {
  std::vector<std::string> names;
  for (int i = 0; i < message.field_count(); ++i) names.push_back(message.field(i)->name());
  if (names.empty()) return "unknown field, allowed: none, this message is empty";
  return absl::StrCat("unknown field, allowed: ", absl::StrJoin(names, ", "));
}

std::string AllowedValues(const FieldDescriptor& field) {
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_ENUM: {
      std::vector<std::string> names;
      for (int i = 0; i < field.enum_type()->value_count(); ++i) {
        const std::string& name = field.enum_type()->value(i)->name();
        if (!absl::EndsWith(name, "_UNSPECIFIED")) names.push_back(name);
      }
      return absl::StrJoin(names, ", ");
    }
    case FieldDescriptor::CPPTYPE_BOOL:
      return "true, false";
    case FieldDescriptor::CPPTYPE_INT32:
      return "a whole number of 32 bits";
    case FieldDescriptor::CPPTYPE_INT64:
      return "a whole number of 64 bits";
    case FieldDescriptor::CPPTYPE_UINT32:
    case FieldDescriptor::CPPTYPE_UINT64:
      return "a whole number of at least 0";
    case FieldDescriptor::CPPTYPE_STRING:
      return "a text in quotes";
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return "fields in { }";
    default:
      return "a number";
  }
}

}  // namespace evenshard
