#ifndef PS_TOOLS_LAUNCH_LABELLED_OUTPUT_H_
#define PS_TOOLS_LAUNCH_LABELLED_OUTPUT_H_

#include <functional>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"

namespace ps {

// Merges the output of several processes into one stream of whole lines, each behind
// the label of its source: "[worker 3] joined". Not thread-safe.
//
// A text that ends, or begins, with a carriage return instead of a line break is a live
// line, as of a progress bar, to be replaced by the next one. On a terminal the latest
// live line stays below the other lines; elsewhere live lines are left out, except the
// last one where a line break makes it final.
class LabelledOutput {
 public:
  // `write` gets the text to print. On a terminal, labels have colours.
  LabelledOutput(bool terminal, std::function<void(absl::string_view)> write);

  // The number of a new source.
  int AddSource(const std::string& label);

  // What a source has written, cut anywhere.
  void Feed(int source, absl::string_view bytes);

  // The source writes no more: prints its line without an end, if any.
  void Close(int source);

 private:
  struct Source {
    std::string prefix;
    std::string line;       // since the last line break or carriage return
    bool returned = false;  // a carriage return was the last of the two
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

}  // namespace ps

#endif  // PS_TOOLS_LAUNCH_LABELLED_OUTPUT_H_
