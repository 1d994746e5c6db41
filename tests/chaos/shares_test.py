"""What two models say of lost and doubled updates under QUORUM."""

import array
import random
import unittest

from tests.chaos import shares

_WORKERS = 4
_UPDATES = 300
_RATE = 0.125
_PARTS = 3
_ELEMENTS = _PARTS * shares.PART


def drawn_sets(seed):
    rng = random.Random(seed)
    return [rng.sample(range(_WORKERS), rng.choice([3, 4])) for _ in range(_UPDATES)]


def trained(sets_of_part):
    """A model after updates by the mean of each set's gradients, in float32."""
    values = array.array("f", [(i * 37 % 101) / 101 for i in range(_ELEMENTS)])
    for part, sets in enumerate(sets_of_part):
        weights = dict.fromkeys(range(_WORKERS), 0.0)
        for ranks in sets:
            for rank in ranks:
                weights[rank] += 1 / len(ranks)
        for i in range(part * shares.PART, (part + 1) * shares.PART):
            values[i] -= _RATE * sum(w * shares.pushed(i, rank) for rank, w in weights.items())
    return {"fc0/weight": values}


def judge(sets_of_part):
    reference = trained([drawn_sets(1)] * _PARTS)
    return shares.judge(trained(sets_of_part), reference, _WORKERS, _RATE)["problems"]


class SharesTest(unittest.TestCase):
    def test_other_sets_are_no_problem_if_all_parts_have_them(self):
        self.assertEqual(judge([drawn_sets(2)] * _PARTS), [])

    def test_an_update_that_is_lost_or_doubled_in_one_part_is_found(self):
        sets = drawn_sets(2)
        self.assertIn("fc0/weight from element 1024 has -1.00 updates",
                      judge([sets, sets[:-1], sets])[0])
        self.assertIn("has +1.00 updates", judge([sets, sets, sets + sets[:1]])[0])

    def test_a_part_with_another_set_is_found(self):
        sets = drawn_sets(2)
        other = [[0, 1, 2] if i == 5 else each for i, each in enumerate(sets)]
        self.assertNotEqual(sorted(other[5]), sorted(sets[5]))
        problems = judge([sets, other, sets])
        self.assertEqual(len(problems), 1)
        self.assertIn("updates of other workers", problems[0])

    def test_all_parts_with_an_update_less_are_found(self):
        problems = judge([drawn_sets(2)[:-1]] * _PARTS)
        self.assertEqual(len(problems), _PARTS)

    def test_a_model_must_be_there(self):
        self.assertEqual(len(shares.judge({}, trained([[]] * _PARTS), 4, 1)["problems"]), 1)


if __name__ == "__main__":
    unittest.main()
