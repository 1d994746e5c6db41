#ifndef EVENSHARD_TOOLS_LAUNCH_LABELLED_OUTPUT_H_
#define EVENSHARD_TOOLS_LAUNCH_LABELLED_OUTPUT_H_

#include <cstdio>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/status/status.h"
#include "absl/strings/string_view.h"

namespace evenshard {

// Merges the output of several processes into one stream of whole lines. Each line begins with the
// label of its source: "[worker 3] joined". Not thread-safe.
//
// A text that ends or begins with a carriage return instead of a line break is a live line, such as
// a progress bar, which the next live line replaces. On a terminal the latest live line stays below
// the other lines. Elsewhere each is a line of its own, unless it is blank.
class LabelledOutput {
 public:
  // `write` prints a text. On a terminal, labels are coloured.
  LabelledOutput(bool terminal, std::function<void(absl::string_view)> write);

  // Has what each source writes from now on go to a file of its own, too, as it is:
  // FOLDER/worker_3.log, after what it has from earlier. Makes the folder, if its parent exists.
  absl::Status KeepIn(const std::string& folder);

  // Adds a source and returns its number.
  int AddSource(const std::string& label);

  // Passes on what a source has written. The bytes may end anywhere in a line.
  void Feed(int source, absl::string_view bytes);

  // Ends a source and prints its unfinished line, if there is one.
  void Close(int source);

 private:
  struct CloseFile {
    void operator()(std::FILE* file) const { std::fclose(file); }
  };
  struct Source {
    std::string prefix;
    std::unique_ptr<std::FILE, CloseFile> file;
    std::string line;       // since the last line break or carriage return
    bool returned = false;  // whether a carriage return came after the last line break
    std::string live;       // the latest live line
  };

  void FeedTerminal(int source, absl::string_view bytes);
  void FeedLines(int source, absl::string_view bytes);
  void PrintLine(const Source& source, absl::string_view line);
  void ShowLive(int source);
  void EndLine(int source);

  const bool terminal_;
  std::string folder_;  // of the files, or empty
  const std::function<void(absl::string_view)> write_;
  std::vector<Source> sources_;
  int shown_ = -1;  // the source whose live line is on the terminal
};

}  // namespace evenshard

#endif  // EVENSHARD_TOOLS_LAUNCH_LABELLED_OUTPUT_H_
