#ifndef EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_ENCODING_COST_H_
#define EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_ENCODING_COST_H_

#include "proto/encoding.pb.h"

namespace evenshard {

// What it takes to encode data for the wire, on this machine and with one thread.
struct EncodingCost {
  double bits = 0;  // of an element
  // For each element. FLOAT32 is sent from where it lies, and read where it was received.
  double encode_nanoseconds = 0;
  double decode_nanoseconds = 0;
  // The rate of a link, in 10^9 bits per second, below which the bits that are not sent take longer
  // than encoding and decoding them.
  double pays_below_gbps = 0;
};

// Measures it, for some milliseconds. REQUIRES: the encoding is not FLOAT32.
EncodingCost MeasureEncoding(Encoding encoding);

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_PSCTL_REPORT_PLAN_ENCODING_COST_H_
