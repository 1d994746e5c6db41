#include "tools/launch/labelled_output.h"

#include <array>
#include <utility>

#include "absl/strings/str_cat.h"

namespace evenshard {
namespace {

// A longer line is cut, so that an endless line does not fill the memory.
constexpr size_t kLongestLine = 64 * 1024;

constexpr std::array<int, 5> kColours = {36, 32, 33, 35, 34};

constexpr char kEraseLine[] = "\r\033[K";
// A live line wider than the terminal could not be erased, so the terminal cuts it at the margin.
constexpr char kWrapOff[] = "\033[?7l";
constexpr char kWrapOn[] = "\033[?7h";

}  // namespace

LabelledOutput::LabelledOutput(bool terminal, std::function<void(absl::string_view)> write)
    : terminal_(terminal), write_(std::move(write)) {}

int LabelledOutput::AddSource(const std::string& label) {
  const int source = static_cast<int>(sources_.size());
  Source added;
  added.prefix = absl::StrCat("[", label, "] ");
  if (terminal_) {
    added.prefix =
        absl::StrCat("\033[", kColours[source % kColours.size()], "m", added.prefix, "\033[0m");
  }
  sources_.push_back(std::move(added));
  return source;
}

void LabelledOutput::Feed(int index, absl::string_view bytes) {
  Source& source = sources_[index];
  for (const char c : bytes) {
    if (c == '\n') {
      EndLine(index);
    } else if (c == '\r') {
      if (!source.line.empty()) source.live = std::exchange(source.line, "");
      source.returned = true;
    } else {
      source.line += c;
      if (source.line.size() >= kLongestLine) EndLine(index);
    }
  }
  if (source.returned) {
    if (!source.line.empty()) source.live = source.line;
    ShowLive(index);
  }
}

void LabelledOutput::Close(int index) {
  const Source& source = sources_[index];
  if (!source.line.empty() || !source.live.empty()) EndLine(index);
}

// Prints the source's line as final, or its live line if the line is empty.
void LabelledOutput::EndLine(int index) {
  Source& source = sources_[index];
  std::string line = std::exchange(source.line, "");
  if (source.returned && line.empty()) line = source.live;
  source.live.clear();
  source.returned = false;
  PrintLine(source, line);
}

void LabelledOutput::PrintLine(const Source& source, absl::string_view line) {
  const int live = std::exchange(shown_, -1);
  write_(absl::StrCat(live >= 0 ? kEraseLine : "", source.prefix, line, "\n"));
  if (live >= 0) ShowLive(live);
}

void LabelledOutput::ShowLive(int index) {
  const Source& source = sources_[index];
  if (!terminal_ || source.live.empty()) return;
  write_(absl::StrCat(kEraseLine, kWrapOff, source.prefix, source.live, kWrapOn));
  shown_ = index;
}

}  // namespace evenshard
