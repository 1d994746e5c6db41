"""What the marks in the parameters say of lost and doubled pushes."""

import array
import unittest

from tests.chaos import ledger

_WORKERS = 3
_ITERATIONS = 200
_SLOTS = ledger.slots_of(_WORKERS)
_ELEMENTS = 2 * ledger.PERIOD


def log(first=0, last=_ITERATIONS):
    return f"start {first}\n" + "".join(f"push {i}\ndone {i}\n" for i in range(first, last))


def trained(leave_out=(), twice=()):
    """The parameters after a run of all iterations, but for pushes (rank, iteration, part)."""
    values = array.array("f", (i % 7 for i in range(_ELEMENTS)))
    for rank in range(_WORKERS):
        for iteration in range(_ITERATIONS):
            for part in range(_ELEMENTS // ledger.PERIOD):
                push = (rank, iteration, part)
                count = 0 if push in leave_out else 2 if push in twice else 1
                place = part * ledger.PERIOD + rank * _SLOTS + iteration % _SLOTS
                values[place] -= count
    return {"fc0.weight": values}


def judge(tensors, logs=None):
    told = [ledger.read(text) for text in logs or [log()] * _WORKERS]
    return ledger.judge(tensors, lambda i: i % 7, _ITERATIONS, told)


class LedgerTest(unittest.TestCase):
    def test_a_run_that_counted_everything_once_is_good(self):
        judged = judge(trained())
        self.assertEqual(judged["problems"], [])
        self.assertEqual(judged["pushes"], 2 * _WORKERS * _ITERATIONS)
        self.assertEqual(judged["left_out"], 0)

    def test_a_push_that_was_answered_and_is_lost_in_one_part_is_found(self):
        judged = judge(trained(leave_out=[(1, 150, 1)]))
        self.assertEqual(len(judged["problems"]), 1)
        self.assertIn("lost pushes in 1 elements: rank 1", judged["problems"][0])

    def test_a_push_that_counts_twice_is_found(self):
        judged = judge(trained(twice=[(2, 7, 0)]))
        self.assertEqual(len(judged["problems"]), 1)
        self.assertIn("doubled pushes in 1 elements: rank 2", judged["problems"][0])

    def test_a_worker_that_was_killed_may_leave_out_its_last_iteration(self):
        killed = "start 0\n" + "".join(f"push {i}\ndone {i}\n" for i in range(60)) + "push 60\n"
        logs = [log(), log(), killed + log(61)]
        judged = judge(trained(leave_out=[(2, 60, 1)]), logs)
        self.assertEqual(judged["problems"], [])
        self.assertEqual(judged["left_out"], 1)
        # No other one.
        self.assertIn("lost", judge(trained(leave_out=[(2, 59, 1)]), logs)["problems"][0])
        self.assertIn("doubled", judge(trained(twice=[(2, 60, 1)]), logs)["problems"][0])

    def test_what_was_answered_before_the_run_went_back_may_be_left_out(self):
        back = log(last=100) + "back 80\n" + log(80).partition("\n")[2]
        logs = [log(), log(), back]
        judged = judge(trained(leave_out=[(2, 79, 0)]), logs)
        self.assertEqual(judged["problems"], [])
        self.assertEqual(judged["went_back"], 1)
        self.assertIn("lost", judge(trained(leave_out=[(2, 80, 0)]), logs)["problems"][0])
        self.assertIn("doubled", judge(trained(twice=[(2, 90, 0)]), logs)["problems"][0])
        # It may have gone back while the worker was dead.
        dead = log(last=100) + log(80)
        self.assertEqual(ledger.read(dead).went_back, 1)

    def test_a_torn_last_line_says_nothing(self):
        told = ledger.read("start 0\npush 0\ndone 0\npush 1\ndo")
        self.assertEqual((told.answered, told.begun), ({0}, 2))

    def test_what_nobody_pushes_stays_as_it_is_and_a_model_must_be_there(self):
        tensors = trained()
        tensors["fc0.weight"][_WORKERS * _SLOTS] += 1
        self.assertIn("nobody's element", judge(tensors)["problems"][0])
        self.assertEqual(judge({})["problems"], ["there is no saved model"])


if __name__ == "__main__":
    unittest.main()
