"""What is drawn from a seed."""

import collections
import unittest

from tests.chaos import schedule


def draw(seed=1, count=62, has_network=True):
    return schedule.draw(seed, count, 32, 4, 5.0, has_network)


class DrawTest(unittest.TestCase):
    def test_the_seed_decides_all(self):
        self.assertEqual(draw(7), draw(7))
        self.assertNotEqual(draw(7), draw(8))

    def test_more_than_half_are_kills_and_a_third_of_those_strike_shards(self):
        for seed in range(20):
            for count in (6, 20, 62):
                kills = [f for f in draw(seed, count) if f.kind == schedule.KILL]
                shards = [f for f in kills if f.targets[0].startswith("ps")]
                self.assertGreater(len(kills), count / 2)
                self.assertEqual(len(shards), round(len(kills) / 3))

    def test_a_long_run_meets_every_kind_of_fault_for_every_role(self):
        groups = {fault.group for fault in draw()}
        self.assertEqual(
            groups,
            {
                "kill worker", "kill ps", "kill 2 ps", "stop worker", "stop ps", "stop launch",
                "cut ps", "reset ps", "reset worker", "full disk",
            },
        )

    def test_some_stops_are_longer_than_the_silence_and_some_shorter(self):
        stops = [f.seconds for s in range(5) for f in draw(s) if f.kind == schedule.STOP]
        self.assertGreater(max(stops), 5)
        self.assertLess(min(stops), 5)

    def test_they_come_in_order_and_leave_the_beginning_and_the_end_alone(self):
        times = [fault.at for fault in draw()]
        self.assertEqual(times, sorted(times))
        self.assertGreater(times[0], 0.03)
        self.assertLess(times[-1], 0.95)

    def test_no_shard_is_killed_far_more_often_than_others(self):
        # Otherwise launch would give a process up that dies again and again.
        kills = collections.Counter(
            fault.targets[0] for fault in draw() if fault.group == "kill ps"
        )
        self.assertLessEqual(max(kills.values()) - min(kills.values()), 2)

    def test_two_shards_that_are_killed_are_a_slots_primary_and_its_copy(self):
        for fault in draw():
            if fault.group == "kill 2 ps":
                first, second = (int(target.split()[1]) for target in fault.targets)
                self.assertEqual(second, (first + 1) % 4)

    def test_all_can_be_of_one_group(self):
        for only in schedule.ONLY:
            drawn = schedule.draw(1, 50, 32, 4, 5.0, True, only)
            self.assertEqual([fault.group for fault in drawn], [only] * 50)
            targets = collections.Counter(fault.targets[0] for fault in drawn)
            self.assertLessEqual(max(targets.values()) - min(targets.values()), 2)

    def test_without_a_network_of_its_own_there_are_only_signals(self):
        kinds = {fault.kind for fault in draw(has_network=False)}
        self.assertEqual(kinds, {schedule.KILL, schedule.STOP})

    def test_it_is_told_in_one_line(self):
        self.assertEqual(str(schedule.Fault(0.5, schedule.KILL, ("ps 0", "ps 1"))),
                         "kill ps 0 and ps 1")
        self.assertEqual(str(schedule.Fault(0.5, schedule.FULL_DISK, (), 2.0)),
                         "full disk for 2.0 s")


class DrawKillingsTest(unittest.TestCase):
    def test_there_are_as_many_as_wanted_at_ascending_iterations_and_some_at_the_start(self):
        moments = schedule.draw_killings(3, 50, 1000)
        self.assertEqual(moments, schedule.draw_killings(3, 50, 1000))
        self.assertEqual(len(moments), 50)
        iterations = [m.iteration for m in moments if m.iteration is not None]
        self.assertEqual(iterations, sorted(set(iterations)))
        self.assertLess(iterations[-1], 1000)
        self.assertTrue(0 < len(iterations) < 50)


if __name__ == "__main__":
    unittest.main()
