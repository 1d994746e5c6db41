"""The programs and the library are built with what makes faults harder to exploit.

Arguments: their paths. A small program says that each protection is missed where it is not.
"""

import pathlib
import re
import subprocess
import sys
import tempfile
import unittest

from tests.security import hardening

_FILES = sys.argv[1:]
_SOURCE = """
#include <cstdio>
#include <cstring>
namespace evenshard {
int Copy(const char* text) {
  char copy[100000];
  return std::puts(std::strcpy(copy, text));
}
}  // namespace evenshard
#ifdef ADDRESS_IN_CODE
asm(".text; .quad main");
#endif
int main(int, char** arguments) { return evenshard::Copy(arguments[0]); }
"""
# What takes one away, and its name.
_FAULTS = {
    "-fno-pie -no-pie": hardening.POSITION_INDEPENDENT,
    "-Wl,-z,norelro": hardening.RELRO,
    "-Wl,-z,lazy": hardening.BIND_NOW,
    "-Wl,-z,execstack": hardening.DATA_ONLY_STACK,
    "-DADDRESS_IN_CODE -Wl,-z,notext": hardening.NO_TEXT_RELOCATIONS,
    "-Wl,-rpath,/tmp/build": hardening.OWN_PLACE,
    "-fno-stack-protector": hardening.STACK_PROTECTOR,
    "-fno-stack-clash-protection": hardening.STACK_CLASH,
    "-U_FORTIFY_SOURCE": hardening.FORTIFY,
    "-fcf-protection=none": hardening.INDIRECT_BRANCHES,
}


def _missing(path):
    is_program = not path.endswith(".so")
    return hardening.missing_in_file(path, is_program) + hardening.missing_in_code(path)


class ProgramsTest(unittest.TestCase):
    def test_nothing_is_missing(self):
        self.assertTrue(_FILES)
        for path in _FILES:
            with self.subTest(path):
                self.assertEqual(_missing(path), [])


class FaultsTest(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(scratch.cleanup)
        cls.folder = pathlib.Path(scratch.name)
        # Those of every build, and not those that a --config adds.
        text = pathlib.Path(".bazelrc").read_text(encoding="utf-8")
        cls.switches = [
            switch
            for line in re.findall(r"^build (.*)", text, re.M)
            for switch in re.findall(r"--(?:c|cxx|link)opt=(\S+)", line)
        ]

    def build(self, *switches):
        source, program = self.folder / "program.cc", self.folder / "program"
        source.write_text(_SOURCE, encoding="utf-8")
        subprocess.run(
            ["g++", source, "-O2", *self.switches, *switches, "-o", program],
            check=True, stderr=subprocess.DEVNULL,  # of what is wrong with text relocations
        )
        return str(program)

    def test_a_program_with_the_switches_of_bazelrc_lacks_nothing(self):
        self.assertEqual(_missing(self.build()), [])

    def test_each_protection_is_missed(self):
        for switches, name in _FAULTS.items():
            with self.subTest(switches):
                self.assertIn(name, _missing(self.build(*switches.split())))


if __name__ == "__main__":
    unittest.main(argv=sys.argv[:1])
