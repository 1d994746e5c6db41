"""What the reports of psctl say of the training."""

import unittest

from tests.chaos import progress


def answer(*iterations):
    # Fields with their default value are absent from JSON.
    return {"stats": {"worker": [{"iteration": str(i)} if i else {} for i in iterations]}}


class LatestIterationTest(unittest.TestCase):
    def test_it_is_the_latest_of_any_worker_at_any_shard(self):
        report = {"shards": [answer(3, 5), answer(4, 0), {"error": "no connection"}]}
        self.assertEqual(progress.latest_iteration(report), 5)

    def test_nobody_has_pushed_or_nobody_answers(self):
        self.assertEqual(progress.latest_iteration({"shards": [answer(0)]}), 0)
        self.assertEqual(progress.latest_iteration({"shards": [{"stats": {}}]}), 0)
        self.assertIsNone(progress.latest_iteration({"shards": [{"error": "no connection"}]}))


if __name__ == "__main__":
    unittest.main()
