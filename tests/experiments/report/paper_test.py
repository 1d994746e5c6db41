"""The paper's figure from one fitted number."""

import unittest

from experiments.report import paper
from experiments.runs import matrix
from tests.experiments import fixture


class PaperTest(unittest.TestCase):
    def test_the_fit_gives_the_ratio_it_was_fitted_on(self):
        outside = paper.fit(8.0, 5.0, 1.2)
        self.assertAlmostEqual((outside + 8) / (outside + 5), 1.2)

    def test_the_four_worker_figure_explains_the_eight_worker_figure(self):
        explained = paper.explain(fixture.Programs)
        self.assertEqual(explained.model_bytes, 4 * 138_357_544)
        # Pushed and pulled by 4 workers: the half of all parameters on each shard, or fc6.
        rate = 1250e6 * 1448 / 1538
        self.assertAlmostEqual(
            explained.exchange_seconds[4, matrix.MEMORY_BASED], 2 * 2 * 553_430_176 / rate, 5
        )
        self.assertAlmostEqual(
            explained.exchange_seconds[4, matrix.LAYER_BASED], 2 * 4 * 411_058_176 / rate, 5
        )
        self.assertAlmostEqual(explained.ratios[4], 1.20)
        self.assertAlmostEqual(explained.ratios[8] / 1.66, 1, delta=0.1)
        self.assertAlmostEqual(explained.outside_seconds, 3, delta=0.5)


if __name__ == "__main__":
    unittest.main()
