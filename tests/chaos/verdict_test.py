"""What the last checkpoint says of lost and doubled updates."""

import copy
import unittest

from tests.chaos import verdict

_WORKERS = 2
_ITERATIONS = 100

_MANIFEST = {
    "content": {
        "checkpoint": {"iteration": 100, "worker_set": [
            {"from_iteration": 0, "assignments": 0, "rank": [0, 1]}
        ]},
        "records": [
            {
                "shard": shard,
                "clocks": [{"version": 101, "iteration": 101, "assignments": 1}],
                "slices": [
                    {"tensor": "fc/weight", "begin": 8 * shard, "size": 8, "clocks": [0, 0],
                     "checksums": [["a", "b"], ["c", "d"]]},
                ],
            }
            for shard in (0, 1)
        ],
    }
}


def judge(change=lambda content: None, models=(b"m", b"m")):
    manifest = copy.deepcopy(_MANIFEST)
    change(manifest["content"])
    return verdict.judge(manifest, _ITERATIONS, _WORKERS, _MANIFEST, models)


class VerdictTest(unittest.TestCase):
    def check(self, change, problem):
        self.assertIn(problem, " ".join(judge(change)["problems"]))

    def test_a_run_like_the_undisturbed_one_is_good(self):
        judged = judge()
        self.assertEqual(judged["problems"], [])
        self.assertEqual(judged["chunks"], 4)
        self.assertTrue(judged["state_is_equal"])
        self.assertTrue(judged["model_is_equal"])

    def test_other_bits_are_told(self):
        def change(content):
            content["records"][0]["slices"][0]["checksums"][1][0] = "x"

        self.check(change, "the last checkpoint has other bits")
        judged = judge(models=(b"m", b"n"))
        self.assertEqual(len(judged["problems"]), 1)
        self.assertIn("the saved model has other bits", judged["problems"][0])

    def test_a_chunk_behind_and_a_worker_set_that_changed_are_told(self):
        def behind(content):
            content["records"][0]["clocks"][0]["iteration"] = 100

        def smaller(content):
            content["checkpoint"]["worker_set"].append({"from_iteration": 50, "rank": [0]})

        self.check(behind, "at iteration 99 instead of 100")
        self.check(smaller, "a worker was left out")

    def test_the_last_checkpoint_is_of_the_last_iteration(self):
        def early(content):
            content["checkpoint"]["iteration"] = 90

        self.check(early, "of iteration 90 instead of 100")
        judged = verdict.judge(None, _ITERATIONS, _WORKERS, _MANIFEST, (b"m", b"m"))
        self.assertEqual(judged["problems"], ["there is no complete checkpoint"])

    def test_a_worker_may_be_left_out_if_the_run_goes_on_without_it(self):
        manifest = copy.deepcopy(_MANIFEST)
        manifest["content"]["checkpoint"]["worker_set"].append({"from_iteration": 50, "rank": [0]})
        judged = verdict.judge(manifest, _ITERATIONS, None, _MANIFEST, (b"m", b"m"))
        self.assertEqual(judged["problems"], [])

    def test_text_of_no_checkpoint_is_none(self):
        self.assertIsNone(verdict.parse(""))


if __name__ == "__main__":
    unittest.main()
