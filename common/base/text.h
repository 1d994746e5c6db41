#ifndef EVENSHARD_COMMON_BASE_TEXT_H_
#define EVENSHARD_COMMON_BASE_TEXT_H_

#include <cstdint>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "absl/types/span.h"

namespace evenshard {

// Formats for people to read.
std::string FormatCount(uint64_t count);     // "138,357,544"
std::string FormatBytes(double bytes);       // "553.4 MB"; 1 MB = 1,000,000 bytes
std::string FormatSeconds(double seconds);   // "1.52s", "2h3m4s"
std::string FormatPercent(double fraction);  // "74.3%"

// Makes `text` from outside this program safe to print in a log, on a terminal or in an error.
// Every byte that is not printable ASCII, such as a line break or a letter of another script,
// becomes an escape like "\n" or "\x1b". A result of more than `max_bytes` is cut and ends with
// "...". Printable text is not changed, so a text may pass through several programs that each call
// this.
std::string Printable(absl::string_view text, size_t max_bytes = 1000);

// A table of text: a line of headings, then the rows. Columns are two spaces apart.
class Table {
 public:
  // A heading that begins with '>' makes its column right-aligned; the '>' is not printed.
  explicit Table(std::vector<std::string> headings);

  // Takes one cell for each column. A cell may have several lines.
  void AddRow(std::vector<std::string> cells);

  std::string ToString() const;

 private:
  std::vector<bool> right_;
  std::vector<std::vector<std::string>> rows_;  // the headings first
};

// Joins the items with ", " and starts a new line before an item that would exceed `width`.
std::string WrapItems(absl::Span<const std::string> items, size_t width);

// Returns the blocks next to each other, line by line, with a bar between them.
std::string SideBySide(absl::Span<const std::string> blocks);

}  // namespace evenshard

#endif  // EVENSHARD_COMMON_BASE_TEXT_H_
