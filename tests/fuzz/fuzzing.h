#ifndef EVENSHARD_TESTS_FUZZ_FUZZING_H_
#define EVENSHARD_TESTS_FUZZ_FUZZING_H_

#include <cstddef>
#include <cstdint>

#include "absl/strings/string_view.h"
#include "fuzzer/FuzzedDataProvider.h"
#include "google/protobuf/message.h"

// What fuzzers share. The library also switches off the log of the code under test.

namespace evenshard {

// Ends the program, which libFuzzer reports with the input, unless `condition` holds.
void Require(bool condition, absl::string_view what);

// Changes up to `most` fields of a message, and of the messages in it, as the input says: sets them
// to likely, extreme and arbitrary values, lengthens and shortens lists, and clears them. So a
// sensible message becomes one that is wrong in a few places. Every field that the type's
// descriptor has may be changed.
void Vary(FuzzedDataProvider& input, int most, google::protobuf::Message* message);

}  // namespace evenshard

#endif  // EVENSHARD_TESTS_FUZZ_FUZZING_H_
