"""Runs that are attacked (bench/attacks) go on, answer, and take little memory. How fast they go on
is measured by //bench:attacks."""

import pathlib
import tempfile
import time
import unittest

from bench.attacks.attacked_run import CASES, MOST_BYTES, Attack, Run

_SECONDS = 2
_UNBOUNDED = ("reader", "compressed_resets")  # whose memory has no bound yet (docs/security.md)


class AttacksTest(unittest.TestCase):
    def test_a_run_goes_on_beside_every_attack(self):
        for case in CASES:
            with tempfile.TemporaryDirectory() as folder, case.run(pathlib.Path(folder)) as run:
                run.await_start()
                for name in case.attacks:
                    with self.subTest(f"{case.who}: {name}"):
                        self._attack(run, case, name)

    def _attack(self, run, case, name):
        parameters = run.parameters()
        before = run.resident_bytes()
        attack = Attack(name, run.target(case.who, _SECONDS))
        time.sleep(_SECONDS / 2)
        # psctl gets in, although it has to connect.
        stats = run.stats()
        connections = stats["connections"]
        limits = connections["limits"]
        self.assertLessEqual(int(connections["open"]), limits["connections"])
        self.assertLessEqual(int(connections["unproven"]), limits["handshakes"])
        self.assertLessEqual(int(connections["readers"]), limits["readers"])
        acts, got_through, _ = attack.end()
        case.require(name, acts, got_through)
        run.require_alive()
        if (case.who, name) != _UNBOUNDED:
            self.assertLess(run.peak_bytes() - before, MOST_BYTES)
        iterations = run.iterations()
        for _ in range(100):
            if run.iterations() > iterations:
                break
            time.sleep(0.1)
        else:
            self.fail("the run stands still")
        run.require_right(parameters)

    def test_of_many_connections_few_are_let_in(self):
        with tempfile.TemporaryDirectory() as folder:
            overrides = ["limits.strangers.handshakes=3", "limits.strangers.handshake_seconds=0.5"]
            with Run(pathlib.Path(folder), is_tls=True, overrides=overrides) as run:
                run.await_start()
                attack = Attack("connections", run.target("stranger", _SECONDS))
                time.sleep(_SECONDS / 2)
                connections = run.stats()["connections"]
                attack.end()
                self.assertLessEqual(int(connections["unproven"]), 3)
                self.assertEqual(connections["limits"]["handshakes"], 3)
                connections = run.stats()["connections"]
                self.assertGreater(int(connections["pushed_out"]), 0)
                self.assertGreater(int(connections["turned_away"]), 0)
                # The last ones go by themselves.
                for _ in range(100):
                    connections = run.stats()["connections"]
                    if int(connections["timed_out"]) > 0 and int(connections["unproven"]) <= 1:
                        break
                    time.sleep(0.1)
                self.assertGreater(int(connections["timed_out"]), 0)
                text = run.psctl("stats")
                self.assertRegex(text, r"shard 0 has \d+ of 4,096 connections, and has closed")
                self.assertIn("(limits.strangers)", text)


if __name__ == "__main__":
    unittest.main()
