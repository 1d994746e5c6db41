#include "tools/launch/labelled_output.h"

#include <sys/stat.h>
#include <unistd.h>

#include <array>
#include <cerrno>
#include <utility>

#include "absl/strings/ascii.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"

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

absl::Status LabelledOutput::KeepIn(const std::string& folder) {
  if (mkdir(folder.c_str(), 0777) != 0 && errno != EEXIST) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot make the folder ", folder));
  }
  if (access(folder.c_str(), W_OK | X_OK) != 0) {
    return absl::ErrnoToStatus(errno, absl::StrCat("cannot write to the folder ", folder));
  }
  folder_ = folder;
  return absl::OkStatus();
}

int LabelledOutput::AddSource(const std::string& label) {
  const int source = static_cast<int>(sources_.size());
  Source added;
  if (!folder_.empty()) {
    const std::string path =
        absl::StrCat(folder_, "/", absl::StrReplaceAll(label, {{" ", "_"}}), ".log");
    added.file.reset(std::fopen(path.c_str(), "ae"));
    if (added.file == nullptr) write_(absl::StrCat("cannot write to ", path, "\n"));
  }
  added.prefix = absl::StrCat("[", label, "] ");
  if (terminal_) {
    added.prefix =
        absl::StrCat("\033[", kColours[source % kColours.size()], "m", added.prefix, "\033[0m");
  }
  sources_.push_back(std::move(added));
  return source;
}

void LabelledOutput::Feed(int index, absl::string_view bytes) {
  if (std::FILE* const file = sources_[index].file.get(); file != nullptr) {
    std::fwrite(bytes.data(), 1, bytes.size(), file);
    std::fflush(file);
  }
  if (terminal_) {
    FeedTerminal(index, bytes);
  } else {
    FeedLines(index, bytes);
  }
}

void LabelledOutput::FeedLines(int index, absl::string_view bytes) {
  Source& source = sources_[index];
  for (const char c : bytes) {
    // Of "\r\n" the first one has ended the line.
    const bool has_ended = std::exchange(source.returned, c == '\r') && source.line.empty();
    if (c == '\n' && !has_ended) {
      EndLine(index);
    } else if (c == '\r') {
      // Progress bars are wiped away with blanks.
      const std::string line = std::exchange(source.line, "");
      if (!absl::StripAsciiWhitespace(line).empty()) PrintLine(source, line);
    } else if (c != '\n') {
      source.line += c;
      if (source.line.size() >= kLongestLine) EndLine(index);
    }
  }
}

void LabelledOutput::FeedTerminal(int index, absl::string_view bytes) {
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
  if (source.live.empty()) return;
  write_(absl::StrCat(kEraseLine, kWrapOff, source.prefix, source.live, kWrapOn));
  shown_ = index;
}

}  // namespace evenshard
