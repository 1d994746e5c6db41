#ifndef PS_BENCH_WIRE_REPORT_H_
#define PS_BENCH_WIRE_REPORT_H_

#include <string>

#include "bench/wire_measure.h"

namespace ps {

// Where and how the results came about: processor, memory, kernel, load, date and command.
struct WireOrigin {
  std::string machine;
  std::string kernel;
  std::string load;
  std::string date;
  std::string command;
};

// Of this machine, now.
WireOrigin DescribeOrigin(int argc, const char* const* argv);

// For people: medians, with the smallest and the largest window behind them.
std::string WireTable(const WireOrigin& origin, const WireResults& results);

// One JSON object: `origin`, `headline`, `goodput`, `latency`, `raw_candidates`. A figure of
// the headline is there where the layouts that it needs were measured.
std::string WireJson(const WireOrigin& origin, const WireResults& results);

}  // namespace ps

#endif  // PS_BENCH_WIRE_REPORT_H_
