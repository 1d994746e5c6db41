#ifndef EVENSHARD_BENCH_WIRE_WIRE_REPORT_H_
#define EVENSHARD_BENCH_WIRE_WIRE_REPORT_H_

#include <string>

#include "bench/wire/wire_measure.h"

namespace evenshard {

// Where, when and how the results were measured.
struct WireOrigin {
  std::string machine;  // processor and memory
  std::string kernel;
  std::string load;  // averages over 1, 5 and 15 minutes
  std::string date;
  std::string command;
};

// Describes this machine at this moment, and the command line.
WireOrigin DescribeOrigin(int argc, const char* const* argv);

// Returns tables for people to read: medians, with the smallest and the largest window.
std::string WireTable(const WireOrigin& origin, const WireResults& results);

// Returns one JSON object with `origin`, `headline`, `goodput`, `latency` and `raw_candidates`. The
// headline has only the figures for which the layouts were measured.
std::string WireJson(const WireOrigin& origin, const WireResults& results);

}  // namespace evenshard

#endif  // EVENSHARD_BENCH_WIRE_WIRE_REPORT_H_
