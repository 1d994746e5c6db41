"""Every program, the Python package and the changelog name the same version."""

import re
import subprocess
import unittest

import evenshard

_PROGRAMS = (
    "server/ps",
    "tools/launch/launch",
    "tools/psctl/psctl",
    "tools/simulate/simulate",
    "worker/worker",
)


class VersionTest(unittest.TestCase):
    def test_programs_print_the_version_of_the_package(self):
        for program in _PROGRAMS:
            done = subprocess.run(
                [program, "--version"], capture_output=True, text=True, check=False, timeout=60
            )
            self.assertEqual(
                (done.returncode, done.stdout), (0, f"evenshard {evenshard.__version__}\n"), program
            )

    def test_it_is_the_newest_of_the_changelog(self):
        with open("CHANGELOG.md", encoding="utf-8") as file:
            versions = re.findall(r"^## \[(\d.*?)\] - \d{4}-\d\d-\d\d$", file.read(), re.MULTILINE)
        self.assertEqual(versions[0], evenshard.__version__)


if __name__ == "__main__":
    unittest.main()
