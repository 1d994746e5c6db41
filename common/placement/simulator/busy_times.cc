#include "common/placement/simulator/busy_times.h"

#include <algorithm>

namespace evenshard {

void BusyTimes::Add(double begin, double end) {
  if (!spans_.empty() && spans_.back().end == begin) {
    spans_.back().end = end;
  } else {
    spans_.push_back({begin, end});
  }
}

std::vector<double> BusyTimes::Fractions(double begin, double end, int bins) const {
  const double width = (end - begin) / bins;
  std::vector<double> fractions(bins);
  for (const Span& span : spans_) {
    if (span.end <= begin || span.begin >= end) continue;
    const int first = std::max(0, static_cast<int>((span.begin - begin) / width));
    for (int bin = first; bin < bins && begin + bin * width < span.end; ++bin) {
      const double busy =
          std::min(span.end, begin + (bin + 1) * width) - std::max(span.begin, begin + bin * width);
      fractions[bin] += std::max(0.0, busy) / width;
    }
  }
  // A sum of fractions may exceed 1 by the rounding of its terms.
  for (double& fraction : fractions) fraction = std::min(fraction, 1.0);
  return fractions;
}

}  // namespace evenshard
