#ifndef EVENSHARD_COMMON_PLACEMENT_SIMULATOR_BUSY_TIMES_H_
#define EVENSHARD_COMMON_PLACEMENT_SIMULATOR_BUSY_TIMES_H_

#include <vector>

namespace evenshard {

// The times in which a link was busy.
class BusyTimes {
 public:
  // REQUIRES: begin <= end, and `begin` is not before the `end` of the last call.
  void Add(double begin, double end);

  // Cuts [begin, end) into equal bins, and returns the fraction of each in which the link was busy.
  // REQUIRES: begin < end, bins >= 1.
  std::vector<double> Fractions(double begin, double end, int bins) const;

 private:
  struct Span {
    double begin;
    double end;
  };
  std::vector<Span> spans_;  // ascending; those that touch are joined
};

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_PLACEMENT_SIMULATOR_BUSY_TIMES_H_
