#include "common/base/text.h"

#include <algorithm>
#include <array>

#include "absl/strings/ascii.h"
#include "absl/strings/escaping.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_format.h"
#include "absl/strings/str_split.h"
#include "absl/strings/strip.h"
#include "absl/time/time.h"

namespace evenshard {
namespace {

std::vector<std::string> Lines(absl::string_view text) {
  return absl::StrSplit(absl::StripSuffix(text, "\n"), '\n');
}

// Appends `line`, without its trailing spaces, and a line break.
void AppendLine(std::string* text, absl::string_view line) {
  absl::StrAppend(text, absl::StripTrailingAsciiWhitespace(line), "\n");
}

}  // namespace

std::string FormatCount(uint64_t count) {
  std::string digits = absl::StrCat(count);
  for (int i = static_cast<int>(digits.size()) - 3; i > 0; i -= 3) digits.insert(i, 1, ',');
  return digits;
}

std::string FormatBytes(double bytes) {
  if (bytes < 1000) return absl::StrFormat("%.0f B", bytes);
  constexpr std::array<const char*, 5> kUnits = {"kB", "MB", "GB", "TB", "PB"};
  size_t unit = 0;
  bytes /= 1000;
  // 999.95 would print as 1000.0.
  while (bytes >= 999.95 && unit + 1 < kUnits.size()) {
    bytes /= 1000;
    ++unit;
  }
  return absl::StrFormat("%.*f %s", bytes < 9.995 ? 2 : 1, bytes, kUnits[unit]);
}

std::string FormatSeconds(double seconds) {
  absl::Duration unit = absl::Seconds(1);
  if (seconds < 1e-3) {
    unit = absl::Microseconds(1);
  } else if (seconds < 1) {
    unit = absl::Milliseconds(1);
  } else if (seconds < 60) {
    unit = absl::Milliseconds(10);
  }
  return absl::FormatDuration(absl::Trunc(absl::Seconds(seconds) + unit / 2, unit));
}

std::string FormatPercent(double fraction) { return absl::StrFormat("%.1f%%", 100 * fraction); }

std::string Printable(absl::string_view text, size_t max_bytes) {
  std::string printable;
  for (const char c : text) {
    const std::string shown =
        absl::ascii_isprint(c) ? std::string(1, c) : absl::CHexEscape(absl::string_view(&c, 1));
    if (printable.size() + shown.size() > max_bytes) return printable + "...";
    printable += shown;
  }
  return printable;
}

Table::Table(std::vector<std::string> headings) {
  for (std::string& heading : headings) {
    right_.push_back(heading[0] == '>');
    if (right_.back()) heading.erase(0, 1);
  }
  rows_.push_back(std::move(headings));
}

void Table::AddRow(std::vector<std::string> cells) { rows_.push_back(std::move(cells)); }

std::string Table::ToString() const {
  std::vector<size_t> widths(right_.size());
  for (const std::vector<std::string>& row : rows_) {
    for (size_t i = 0; i < row.size(); ++i) {
      for (const std::string& line : Lines(row[i])) widths[i] = std::max(widths[i], line.size());
    }
  }
  std::string text;
  for (const std::vector<std::string>& row : rows_) {
    std::vector<std::vector<std::string>> cells;
    size_t height = 0;
    for (const std::string& cell : row) {
      cells.push_back(Lines(cell));
      height = std::max(height, cells.back().size());
    }
    for (size_t y = 0; y < height; ++y) {
      std::string line;
      for (size_t i = 0; i < cells.size(); ++i) {
        const std::string part = y < cells[i].size() ? cells[i][y] : "";
        const std::string space(widths[i] - part.size(), ' ');
        absl::StrAppend(&line, i == 0 ? "" : "  ", right_[i] ? space : "", part,
                        right_[i] ? "" : space);
      }
      AppendLine(&text, line);
    }
  }
  return text;
}

std::string WrapItems(absl::Span<const std::string> items, size_t width) {
  std::string text;
  size_t column = 0;
  for (const std::string& item : items) {
    if (column > 0 && column + 2 + item.size() > width) {
      text += ",\n";
      column = 0;
    } else if (column > 0) {
      text += ", ";
      column += 2;
    }
    text += item;
    column += item.size();
  }
  return text;
}

std::string SideBySide(absl::Span<const std::string> blocks) {
  std::vector<std::vector<std::string>> columns;
  size_t height = 0;
  for (const std::string& block : blocks) {
    columns.push_back(Lines(block));
    height = std::max(height, columns.back().size());
  }
  std::string text;
  for (size_t y = 0; y < height; ++y) {
    std::string line;
    for (size_t i = 0; i < columns.size(); ++i) {
      size_t width = 0;
      for (const std::string& other : columns[i]) width = std::max(width, other.size());
      std::string part = y < columns[i].size() ? columns[i][y] : "";
      part.resize(width, ' ');
      absl::StrAppend(&line, i == 0 ? "" : "  |  ", part);
    }
    AppendLine(&text, line);
  }
  return text;
}

}  // namespace evenshard
