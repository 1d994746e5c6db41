"""Holds the examples in the headers' comments equal to the code that examples_test compiles."""

import re
import unittest

_SOURCE = "tests/examples/examples_test.cc"


def examples():
    """The blocks of the source by the header that each names."""
    with open(_SOURCE, encoding="utf-8") as file:
        text = file.read()
    return dict(re.findall(r"^// \[ (\S+)\n(.*?)^// \]$", text, re.DOTALL | re.MULTILINE))


class HeadersTest(unittest.TestCase):
    def test_every_example_stands_in_its_header(self):
        found = examples()
        self.assertEqual(
            set(found),
            {"server/server.h", "worker/exchange/grpc/exchange.h", "common/placement/plan/plan.h"},
        )
        for header, code in found.items():
            comment = "".join(
                "//   " + line if line.strip() else "//\n"
                for line in code.splitlines(keepends=True)
            )
            with self.subTest(header), open(header, encoding="utf-8") as file:
                self.assertIn(comment, file.read())


if __name__ == "__main__":
    unittest.main()
