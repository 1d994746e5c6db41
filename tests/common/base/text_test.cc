#include "common/base/text.h"

#include <catch2/catch.hpp>

namespace evenshard {
namespace {

TEST_CASE("counts have their thousands separated") {
  CHECK(FormatCount(0) == "0");
  CHECK(FormatCount(999) == "999");
  CHECK(FormatCount(1000) == "1,000");
  CHECK(FormatCount(138357544) == "138,357,544");
}

TEST_CASE("bytes are given in decimal units with about three digits") {
  CHECK(FormatBytes(0) == "0 B");
  CHECK(FormatBytes(999) == "999 B");
  CHECK(FormatBytes(1000) == "1.00 kB");
  CHECK(FormatBytes(553430176) == "553.4 MB");
  CHECK(FormatBytes(999960) == "1.00 MB");
  CHECK(FormatBytes(3384043520) == "3.38 GB");
}

TEST_CASE("seconds are rounded according to their size") {
  CHECK(FormatSeconds(0) == "0");
  CHECK(FormatSeconds(0.0000126) == "13us");
  CHECK(FormatSeconds(0.0126) == "13ms");
  CHECK(FormatSeconds(1.2345) == "1.23s");
  CHECK(FormatSeconds(7384.4) == "2h3m4s");
}

TEST_CASE("text from outside cannot end a line or steer a terminal") {
  CHECK(Printable("worker 1: \"no\" data at C:\\x") == "worker 1: \"no\" data at C:\\x");
  CHECK(Printable("done\n12:00:00 error forged\r\t") == "done\\n12:00:00 error forged\\r\\t");
  CHECK(Printable("\x1b[2J\x7f") == "\\x1b[2J\\x7f");
  CHECK(Printable("\xc2\x9b"
                  "2J") == "\\xc2\\x9b2J");  // the same in one character
  CHECK(Printable(absl::string_view("a\0b", 3)) == "a\\x00b");
}

TEST_CASE("printable text stays as it is, however often it is passed on") {
  const std::string once = Printable("a\nb\\n\x1b");
  CHECK(Printable(once) == once);
}

TEST_CASE("long text from outside is cut, but never within an escape") {
  CHECK(Printable("12345", 5) == "12345");
  CHECK(Printable("123456", 5) == "12345...");
  CHECK(Printable("123\x1b"
                  "56",
                  5) == "123...");
  CHECK(Printable(std::string(1'000'000, '\n')).size() == 1003);
}

TEST_CASE("a table aligns its columns, cells of several lines included") {
  Table table({"name", ">size", "holds"});
  table.AddRow({"a", "1", "x,\ny"});
  table.AddRow({"long", "1,000", ""});
  table.AddRow({"short"});
  CHECK(table.ToString() ==
        "name    size  holds\n"
        "a          1  x,\n"
        "              y\n"
        "long   1,000\n"
        "short\n");
}

TEST_CASE("items wrap before a line would be too long") {
  CHECK(WrapItems({"aa", "bb", "cc"}, 6) == "aa, bb,\ncc");
  CHECK(WrapItems({"a long one", "b"}, 4) == "a long one,\nb");
  CHECK(WrapItems({}, 4).empty());
}

TEST_CASE("blocks stand side by side, the shorter one filled up") {
  CHECK(SideBySide({"one\ntwo and\nthree\n", "1\n"}) ==
        "one      |  1\n"
        "two and  |\n"
        "three    |\n");
}

}  // namespace
}  // namespace evenshard
