"""How busy a machine's processors are."""

import unittest

from experiments.cluster import processor


class ProcessorTest(unittest.TestCase):
    def test_idle_and_waiting_are_not_busy_and_guests_are_counted_once(self):
        line = "cpu  100 20 30 800 50 4 6 10 99 99\n"
        self.assertEqual(processor.busy_and_total(line), (170, 1020))

    def test_use_is_that_of_the_time_asked_for(self):
        samples = [(0, 0, 0), (1, 100, 100), (2, 110, 200), (3, 120, 300), (4, 220, 400)]
        self.assertEqual(processor.use(samples, 1, 3), 0.1)
        self.assertEqual(processor.use(samples, 0, 4), 0.55)

    def test_times_between_samples_take_the_samples_around_them(self):
        samples = [(0, 0, 0), (1, 100, 100), (2, 110, 200)]
        self.assertEqual(processor.use(samples, 1.4, 1.6), 0.1)
        self.assertEqual(processor.use(samples, 1.5, 9), 0.1)
        self.assertEqual(processor.use(samples, 7, 9), 0.1)

    def test_one_sample_says_nothing(self):
        self.assertIsNone(processor.use([(0, 0, 0)], 0, 1))


if __name__ == "__main__":
    unittest.main()
