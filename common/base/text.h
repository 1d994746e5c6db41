#ifndef PS_COMMON_BASE_TEXT_H_
#define PS_COMMON_BASE_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace ps {

std::string FormatCount(uint64_t count);     // "138,357,544"
std::string FormatBytes(double bytes);       // "553.4 MB"; 1 MB = 1,000,000 bytes
std::string FormatSeconds(double seconds);   // "1.52s", "2h3m4s"
std::string FormatPercent(double fraction);  // "74.3%"

// `text` from outside of this program, fit for a log line, a terminal or an error: line breaks,
// escape sequences and all else that is not printable ASCII become "\n", "\x1b" and the like, and
// what is longer than `max_bytes` is cut, with "..." in its place. Printable text stays as it is,
// so that a text may pass through several programs. Names of files in other scripts are escaped.
std::string Printable(absl::string_view text, size_t max_bytes = 1000);

// A text table: a line of headings, then rows; columns two spaces apart.
class Table {
 public:
  // A heading that begins with '>' stands, without it, over a right-aligned column.
  explicit Table(std::vector<std::string> headings);

  // One cell a column; a cell may have several lines.
  void AddRow(std::vector<std::string> cells);

  std::string ToString() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // the headings first
};

// The items separated by ", ", broken into lines of at most `width` where they fit.
std::string WrapItems(absl::Span<const std::string> items, size_t width);

// The blocks next to each other, line by line, with a bar between them.
std::string SideBySide(absl::Span<const std::string> blocks);

}  // namespace ps

#endif  // PS_COMMON_BASE_TEXT_H_
