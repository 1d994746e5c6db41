#include "common/text.h"

#include <catch2/catch.hpp>

namespace ps {
namespace {

TEST_CASE("Counts have their thousands separated") {
  CHECK(FormatCount(0) == "0");
  CHECK(FormatCount(999) == "999");
  CHECK(FormatCount(1000) == "1,000");
  CHECK(FormatCount(138357544) == "138,357,544");
}

TEST_CASE("Bytes are given in decimal units with about three digits") {
  CHECK(FormatBytes(0) == "0 B");
  CHECK(FormatBytes(999) == "999 B");
  CHECK(FormatBytes(1000) == "1.00 kB");
  CHECK(FormatBytes(553430176) == "553.4 MB");
  CHECK(FormatBytes(999960) == "1.00 MB");
  CHECK(FormatBytes(3384043520) == "3.38 GB");
}

TEST_CASE("Seconds are rounded to what matters at their size") {
  CHECK(FormatSeconds(0) == "0");
  CHECK(FormatSeconds(0.0000126) == "13us");
  CHECK(FormatSeconds(0.0126) == "13ms");
  CHECK(FormatSeconds(1.2345) == "1.23s");
  CHECK(FormatSeconds(7384.4) == "2h3m4s");
}

TEST_CASE("A table aligns its columns, cells of several lines included") {
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

TEST_CASE("Items wrap where a line would be too long") {
  CHECK(WrapItems({"aa", "bb", "cc"}, 6) == "aa, bb,\ncc");
  CHECK(WrapItems({"a long one", "b"}, 4) == "a long one,\nb");
  CHECK(WrapItems({}, 4).empty());
}

TEST_CASE("Blocks stand side by side, the shorter one filled up") {
  CHECK(SideBySide({"one\ntwo and\nthree\n", "1\n"}) ==
        "one      |  1\n"
        "two and  |\n"
        "three    |\n");
}

}  // namespace
}  // namespace ps
