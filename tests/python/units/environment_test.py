"""What the environment gives to a worker, and what its script says beside that."""

import os
import unittest
from unittest import mock

from tests.python import fixture  # noqa: F401  # finds the package
from evenshard import _environment


class OverridesTest(unittest.TestCase):
    def test_which_count(self):
        with mock.patch.dict(os.environ, EVENSHARD_OVERRIDES="workers=4\n\nshard=[]"):
            of_the_environment = ["workers=4", "shard=[]"]
            for given, config, expected in (
                (None, None, of_the_environment),
                (None, "F", of_the_environment),
                (["a=1", "b=2"], None, [*of_the_environment, "a=1", "b=2"]),
                ("a=1", None, [*of_the_environment, "a=1"]),
                (["a=1"], "F", ["a=1"]),
                ([], "F", []),
            ):
                self.assertEqual(_environment.overrides(given, config), expected)


if __name__ == "__main__":
    unittest.main()
