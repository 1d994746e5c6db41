"""What the environment gives to a worker, and what its script says beside that."""

import contextlib
import os
import unittest
from unittest import mock

from tests.python import fixture  # noqa: F401  # finds the package
from evenshard import _environment, _topology, errors, run


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

    def test_only_a_line_feed_ends_one(self):
        for text in ("shard=['\u2028']\nb=2", "recovery={\rreplicas: 1}\nb=2"):
            with mock.patch.dict(os.environ, EVENSHARD_OVERRIDES=text):
                self.assertEqual(_environment.overrides(None, None), text.split("\n"))


class RankTest(unittest.TestCase):
    def test_what_is_no_rank(self):
        self.assertEqual([_environment.rank(each) for each in (0, 3)], [0, 3])
        for wrong in (1.9, -1, 2**32 + 1, [1], 2.0):
            with self.assertRaisesRegex(errors.ConfigError, "rank: is "):
                _environment.rank(wrong)
            with mock.patch.dict(os.environ, RANK=str(wrong)):
                with self.assertRaisesRegex(errors.ConfigError, "RANK: is "):
                    _environment.rank(None)


class AddressesTest(unittest.TestCase):
    """Those of a ring that torchrun starts."""

    def addresses(self, towards):
        """The hosts of two workers, the second of which is this. `towards` is the interface to
        each host."""
        class Store(dict):
            def set(self, key, value):
                self[key] = value.encode()

            get = dict.__getitem__

        store = Store({"ring/host/0": b"192.0.2.7", "ring/address/0": b"192.0.2.7:1"})
        with (
            mock.patch.dict(os.environ, MASTER_ADDR="here"),
            mock.patch.object(_topology, "_host_towards", towards.__getitem__),
            mock.patch.object(_topology.socket, "create_server", self.server),
        ):
            return _topology.addresses_by(store, "ring/", 1, 2)

    @contextlib.contextmanager
    def server(self, address, family):
        server = mock.Mock()
        server.getsockname.return_value = (address[0], 50)
        yield server

    def test_the_interface_to_the_master(self):
        self.assertEqual(self.addresses({"here": "192.0.2.9"}), ["192.0.2.7:1", "192.0.2.9:50"])

    def test_a_master_on_this_host_that_has_a_loopback_address(self):
        self.assertEqual(
            self.addresses({"here": "127.0.0.1", "192.0.2.7": "192.0.2.9"}),
            ["192.0.2.7:1", "192.0.2.9:50"],
        )
        self.assertEqual(
            self.addresses({"here": "::1", "192.0.2.7": "2001:db8::1"}),
            ["192.0.2.7:1", "[2001:db8::1]:50"],
        )


class CommandLineTest(unittest.TestCase):
    def launched(self, *arguments):
        with mock.patch.object(run.launching, "launch", return_value=0) as launch:
            run.main(arguments)
        return launch.call_args.kwargs

    def test_everything_behind_the_script_is_the_scripts(self):
        for arguments in ([], ["--", "x"], ["a", "--", "--workers", "3"], ["--help"]):
            options = self.launched("--workers", "2", "train.py", *arguments)
            self.assertEqual(
                (options["workers"], options["script"], options["arguments"]),
                (2, "train.py", arguments),
            )
        self.assertEqual(self.launched("--", "train.py", "--", "x")["arguments"], ["--", "x"])
        self.assertEqual(self.launched("-m", "package.train", "-x")["arguments"], ["-x"])


if __name__ == "__main__":
    unittest.main()
