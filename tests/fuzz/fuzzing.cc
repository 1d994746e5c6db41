#include "tests/fuzz/fuzzing.h"

#include <cstdio>
#include <cstdlib>
#include <limits>
#include <string>
#include <type_traits>

#include "google/protobuf/descriptor.h"
#include "google/protobuf/stubs/logging.h"
#include "spdlog/spdlog.h"

extern "C" int LLVMFuzzerInitialize(int*, char***) {
  spdlog::set_level(spdlog::level::off);
  google::protobuf::SetLogHandler(nullptr);
  return 0;
}

namespace evenshard {
namespace {

using google::protobuf::FieldDescriptor;
using google::protobuf::Message;
using google::protobuf::Reflection;

constexpr size_t kMostBytes = 300;  // of a text; longer ones are the same text over and over

// Returns a number near `now`, one at an end of T's range, a small one or an arbitrary one.
template <typename T>
T Number(FuzzedDataProvider& input, T now) {
  using Limits = std::numeric_limits<T>;
  switch (input.ConsumeIntegralInRange(0, 5)) {
    case 0:
      return Limits::lowest();
    case 1:
      return Limits::max();
    case 2:
      return now < Limits::max() ? static_cast<T>(now + 1) : now;
    case 3:
      return now > Limits::lowest() ? static_cast<T>(now - 1) : now;
    case 4:
      return static_cast<T>(input.ConsumeIntegral<uint8_t>());
    default:
      return input.ConsumeIntegral<T>();
  }
}

template <typename T>
T Float(FuzzedDataProvider& input, T now) {
  using Limits = std::numeric_limits<T>;
  const T values[] = {0,
                      -now,
                      now * 2,
                      Limits::max(),
                      Limits::denorm_min(),
                      Limits::infinity(),
                      Limits::quiet_NaN(),
                      input.ConsumeFloatingPoint<T>()};
  return input.PickValueInArray(values);
}

// ASCII, since a message with a string that is not UTF-8 is none.
std::string Text(FuzzedDataProvider& input, const std::string& now) {
  std::string text = input.ConsumeRandomLengthString(kMostBytes);
  for (char& c : text) c = static_cast<char>(c & 0x7f);
  if (input.ConsumeBool()) text = now.substr(0, now.size() / 2) + text;
  // Some limits are beyond what an input has.
  constexpr size_t kLong = 300'000;
  if (input.ConsumeIntegral<uint8_t>() == 0 && !text.empty()) {
    while (text.size() < kLong) text += text;
  }
  return text;
}

// Sets a field, or element `index` of a list, or with -1 a new one.
void SetField(FuzzedDataProvider& input, const FieldDescriptor& field, int index,
              Message* message) {
  const Reflection& reflection = *message->GetReflection();
  const bool is_new = index < 0;
  const auto set = [&](auto get, auto get_in_list, auto set, auto set_in_list, auto add,
                       auto change) {
    if (!field.is_repeated()) {
      (reflection.*set)(message, &field, change((reflection.*get)(*message, &field)));
    } else if (is_new) {
      (reflection.*add)(message, &field,
                        change(std::decay_t<decltype((reflection.*get)(*message, &field))>()));
    } else {
      (reflection.*set_in_list)(message, &field, index,
                                change((reflection.*get_in_list)(*message, &field, index)));
    }
  };
#define EVENSHARD_SET(Type, change)                                                   \
  set(&Reflection::Get##Type, &Reflection::GetRepeated##Type, &Reflection::Set##Type, \
      &Reflection::SetRepeated##Type, &Reflection::Add##Type,                         \
      [&](const auto& now) { return change(input, now); })
  switch (field.cpp_type()) {
    case FieldDescriptor::CPPTYPE_INT32:
      return EVENSHARD_SET(Int32, Number);
    case FieldDescriptor::CPPTYPE_INT64:
      return EVENSHARD_SET(Int64, Number);
    case FieldDescriptor::CPPTYPE_UINT32:
      return EVENSHARD_SET(UInt32, Number);
    case FieldDescriptor::CPPTYPE_UINT64:
      return EVENSHARD_SET(UInt64, Number);
    case FieldDescriptor::CPPTYPE_DOUBLE:
      return EVENSHARD_SET(Double, Float);
    case FieldDescriptor::CPPTYPE_FLOAT:
      return EVENSHARD_SET(Float, Float);
    case FieldDescriptor::CPPTYPE_BOOL:
      return EVENSHARD_SET(Bool, [](FuzzedDataProvider&, bool now) { return !now; });
    case FieldDescriptor::CPPTYPE_ENUM:
      return EVENSHARD_SET(EnumValue, Number);
    case FieldDescriptor::CPPTYPE_STRING:
      return EVENSHARD_SET(String, Text);
    case FieldDescriptor::CPPTYPE_MESSAGE:
      return Vary(input, 3,
                  !field.is_repeated() ? reflection.MutableMessage(message, &field)
                  : is_new             ? reflection.AddMessage(message, &field)
                                       : reflection.MutableRepeatedMessage(message, &field, index));
  }
#undef EVENSHARD_SET
}

}  // namespace

void Require(bool condition, absl::string_view what) {
  if (condition) return;
  std::fprintf(stderr, "not as it must be: %s\n", std::string(what).c_str());
  std::abort();
}

void Vary(FuzzedDataProvider& input, int most, Message* message) {
  const google::protobuf::Descriptor& type = *message->GetDescriptor();
  if (type.field_count() == 0) return;
  const Reflection& reflection = *message->GetReflection();
  for (int left = input.ConsumeIntegralInRange(0, most); left > 0; --left) {
    const FieldDescriptor& field =
        *type.field(input.ConsumeIntegralInRange(0, type.field_count() - 1));
    const int elements = field.is_repeated() ? reflection.FieldSize(*message, &field) : 0;
    switch (input.ConsumeIntegralInRange(0, 5)) {
      case 0:
        reflection.ClearField(message, &field);
        break;
      case 1:
        if (elements > 0) reflection.RemoveLast(message, &field);
        break;
      default:
        SetField(input, field, elements > 0 ? input.ConsumeIntegralInRange(-1, elements - 1) : -1,
                 message);
    }
  }
}

}  // namespace evenshard
