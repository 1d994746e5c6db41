"""How the package finds its library, and that it begins without what it may lack."""

import os
import tempfile
import unittest

from tests.python import fixture

_MAKE_WORKER = """
import array, evenshard
try:
    evenshard.Worker("model {}", {"w": array.array("f", [1])}, rank=0)
except evenshard.Error as error:
    print(type(error).__name__, error)
"""


class LibraryTest(unittest.TestCase):
    def says(self, library):
        code, output, complaints = fixture.run_script(
            _MAKE_WORKER, environment={"EVENSHARD_LIBRARY": library}
        )
        self.assertEqual((code, complaints), (0, ""))
        return output

    def test_a_library_of_another_abi(self):
        path = fixture.built("tests/python/units/libother_abi.so")
        self.assertIn(
            f"FailedPrecondition {path} has version 1000 of the C interface, allowed: 8",
            self.says(path),
        )

    def test_what_is_no_library(self):
        with tempfile.NamedTemporaryFile() as file:
            self.assertIn(f"{file.name} is not Evenshard's library", self.says(file.name))
        libc = self.says("/lib/x86_64-linux-gnu/libc.so.6")
        if os.path.exists("/lib/x86_64-linux-gnu/libc.so.6"):
            self.assertIn("libc.so.6 is not Evenshard's library", libc)

    def test_no_library(self):
        self.assertIn("looked for /nowhere/lib.so", self.says("/nowhere/lib.so"))
        self.assertIn("bazel build //client:libevenshard.so", self.says("/nowhere/lib.so"))


class ImportTest(unittest.TestCase):
    def run_script(self, text):
        code, output, complaints = fixture.run_script(text)
        self.assertEqual((code, complaints), (0, ""))
        return output

    def test_nothing_is_loaded_by_the_import(self):
        output = self.run_script(
            "import sys, evenshard\n"
            "print([name for name in ('torch', 'numpy') if name in sys.modules])\n"
            "print(evenshard._library.load.cache_info().currsize)\n"
        )
        self.assertEqual(output.split(), ["[]", "0"])

    def test_without_pytorch(self):
        output = self.run_script(
            "import sys\n"
            "sys.modules['torch'] = None\n"
            "import evenshard, pydoc\n"
            "print('Optimizer' in dir(evenshard))\n"
            "print('class Worker' in pydoc.plain(pydoc.render_doc(evenshard)))\n"
            "try:\n"
            "    evenshard.Optimizer\n"
            "except ImportError as error:\n"
            "    print(error)\n"
        )
        self.assertIn("False\nTrue\nevenshard.Optimizer needs PyTorch", output)

    @unittest.skipIf(fixture.torch is None, "PyTorch is not installed: help on Optimizer")
    def test_help(self):
        output = self.run_script(
            "import evenshard, pydoc\n"
            "print(pydoc.render_doc(evenshard, renderer=pydoc.plaintext))\n"
        )
        for part in ("class Optimizer(", "class Worker(", "class WentBack(", "no_sync(self)"):
            self.assertIn(part, output)


if __name__ == "__main__":
    unittest.main()
