#ifndef EVENSHARD_TOOLS_LAUNCH_LABELLED_OUTPUT_H_
#define EVENSHARD_TOOLS_LAUNCH_LABELLED_OUTPUT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace evenshard {

// Merges the output of several processes into one stream of whole lines. Each line begins with the
// label of its source: "[worker 3] joined". Not thread-safe.
//
// A text that ends or begins with a carriage return instead of a line break is a live line, such as
// a progress bar, which the next live line replaces. On a terminal the latest live line stays below
// the other lines. Elsewhere live lines are left out, unless a line break makes one final.
class LabelledOutput {
 public:
  // `write` prints a text. On a terminal, labels are coloured.
  LabelledOutput(bool terminal, std::function<void(absl::string_view)> write);

  // Adds a source and returns its number.
  int AddSource(const std::string& label);

  // Passes on what a source has written. The bytes may end anywhere in a line.
  void Feed(int source, absl::string_view bytes);

  // Ends a source and prints its unfinished line, if there is one.
  void Close(int source);

 private:
  struct Source {
    std::string prefix;
    std::string line;       // since the last line break or carriage return
    bool returned = false;  // whether a carriage return came after the last line break
    std::string live;       // the latest live line
  };

  void PrintLine(const Source& source, absl::string_view line);
  void ShowLive(int source);
  void EndLine(int source);

  const bool terminal_;
  const std::function<void(absl::string_view)> write_;
  std::vector<Source> sources_;
  int shown_ = -1;  // the source whose live line is on the terminal
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_LABELLED_OUTPUT_H_
