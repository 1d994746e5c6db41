"""What the last checkpoint says of lost and doubled updates."""

import copy
import unittest

from tests.chaos import verdict

_WORKERS = 2
_ITERATIONS = 100

_MANIFEST = {
    "content": {
        "checkpoint": {"iteration": 100, "worker_set": [{"from_iteration": 0, "rank": [0, 1]}]},
        "records": [
            {
                "shard": shard,
                "clocks": [{"version": 100, "iteration": 100, "next_iteration": []}],
                "slices": [
                    {"tensor": "fc/weight", "begin": 8 * shard, "size": 8, "clocks": [0, 0],
                     "checksums": [["a", "b"], ["c", "d"]]},
                ],
            }
            for shard in (0, 1)
        ],
    }
}


def judge(change=lambda content: None, reference=_MANIFEST, models=(b"m", b"m")):
    manifest = copy.deepcopy(_MANIFEST)
    change(manifest["content"])
    return verdict.judge(manifest, _ITERATIONS, _WORKERS, reference, models)


class VerdictTest(unittest.TestCase):
    def check(self, change, problem, **counts):
        judged = judge(change)
        self.assertIn(problem, " ".join(judged["problems"]))
        for name, count in counts.items():
            self.assertEqual(judged[name], count)

    def test_a_run_like_the_undisturbed_one_is_good(self):
        judged = judge()
        self.assertEqual(judged["problems"], [])
        self.assertEqual(judged["chunks"], 4)
        self.assertTrue(judged["state_is_equal"])
        self.assertTrue(judged["model_is_equal"])

    def test_clocks_tell_lost_and_doubled_updates(self):
        def lose(content):
            content["records"][1]["clocks"][0]["version"] = 97

        def double(content):
            content["records"][0]["clocks"][0]["version"] = 101

        self.check(lose, "6 updates of chunks were lost", lost_updates=6, doubled_updates=0)
        self.check(double, "2 updates of chunks were doubled", lost_updates=0, doubled_updates=2)

    def test_other_bits_are_told(self):
        def change(content):
            content["records"][0]["slices"][0]["checksums"][1][0] = "x"

        self.check(change, "the last checkpoint has other bits")
        judged = judge(models=(b"m", b"n"))
        self.assertEqual(len(judged["problems"]), 1)
        self.assertIn("the saved model has other bits", judged["problems"][0])

    def test_a_chunk_behind_and_a_worker_set_that_changed_are_told(self):
        def behind(content):
            content["records"][0]["clocks"][0]["iteration"] = 99

        def smaller(content):
            content["checkpoint"]["worker_set"].append({"from_iteration": 50, "rank": [0]})

        self.check(behind, "at iteration 99 instead of 100")
        self.check(smaller, "a worker was left out")

    def test_the_last_checkpoint_is_of_the_last_iteration(self):
        def early(content):
            content["checkpoint"]["iteration"] = 90

        self.check(early, "of iteration 90 instead of 100")
        judged = verdict.judge(None, _ITERATIONS, _WORKERS)
        self.assertEqual(judged["problems"], ["there is no complete checkpoint"])

    def test_without_a_reference_only_clocks_count(self):
        self.assertEqual(judge(reference=None, models=None)["problems"], [])

    def test_text_of_no_checkpoint_is_none(self):
        self.assertIsNone(verdict.parse(""))


if __name__ == "__main__":
    unittest.main()
