"""The report and its charts, of fixed measurements."""

import functools
import re
import unittest
import xml.etree.ElementTree

from experiments.cluster import network
from experiments.report import charts, paper, report
from experiments.report.results import Results
from experiments.runs import experiment_config
from tests.experiments import fixture


def _results(text=fixture.EXPERIMENT, order=lambda runs: runs):
    """Of runs that were made in that order."""
    experiment = experiment_config.parse(text, "e.textproto")
    plans, stored = fixture.measured(experiment)
    stored = {run: stored[run] for run in order(list(stored))}
    return Results(network.NAMESPACES, experiment, plans, stored)


def _drawn(results):
    """The content of each file that the charts are drawn to."""
    files = {}
    charts.draw(results, files.__setitem__)
    return files


@functools.cache
def _drawn_in_order():
    return _drawn(_results())


class ReportTest(unittest.TestCase):
    def test_it_shows_each_cell_beside_its_bound_and_flags_those_bound_by_the_processor(self):
        text = report.write(_results(), ["speedup_none"], None, "the command")
        self.assertIn(
            "| 4 | 2 | memory-based | full | communication only | 0.020 (0.019-0.022) | 0.020"
            " | 1.00 | 100% | 2,000.0 | 2.00 | 1.50 | 95% ! |",
            text,
        )
        self.assertIn("4 of 4 are at most 1.10 times their bound", text)
        self.assertIn("more than 90% of the machine's processors", text)
        self.assertIn("| 4 | 2 | layer-based (greedy) | 0 | 3.0 | 3.0 | 3.0 | 3.0 |", text)
        self.assertIn("the largest difference is 1.00%", text)
        self.assertIn("![speedup none](speedup_none.svg)", text)
        self.assertIn("`the command`", text)
        self.assertIn("dilated 2 times", text)
        self.assertNotIn("The paper explained", text)

    def test_the_paper_is_explained_beside_this_system(self):
        explained = paper.Paper(4e6, 0.05, {4: 1.2, 8: 1.7}, {})
        text = report.write(_results(), [], explained, "")
        self.assertIn("| the paper, measured | 1.20 | 1.66 |", text)
        self.assertIn("fitted on the first | 1.20 | 1.70 |", text)
        self.assertIn("this system, `full`, communication only, measured | 1.50 | - |", text)
        # Four times the bytes at a tenth of the time: 0.012 s and 0.008 s, hidden by 0.05 s.
        self.assertIn("with its measured exchange | 1.00 | - |", text)

    def test_the_simulator_stands_beside_the_measurement_with_its_error(self):
        text = report.write(_results(), [], None, "")
        self.assertIn("memory-based, full, communication only | 0.020 | 0.025 | +25.0% |", text)
        self.assertIn("(greedy), full, communication only | 0.030 | 0.037 | +25.0% |", text)
        self.assertIn("Within 10% in 0 of 4.", text)

    def test_charts_are_images(self):
        files = _drawn_in_order()
        names = ["speedup_none", "shard_bytes", "link_use", "iteration_time"]
        self.assertEqual(set(files), {f"{name}.{end}" for name in names for end in ("svg", "png")})
        for name in names:
            root = xml.etree.ElementTree.fromstring(files[name + ".svg"])
            self.assertEqual(root.tag, "{http://www.w3.org/2000/svg}svg")
            content = files[name + ".png"]
            self.assertEqual(content[:8], b"\x89PNG\r\n\x1a\n")
            self.assertEqual(content[-8:-4], b"IEND")

    def test_several_models_have_a_column_and_charts_of_their_own(self):
        results = _results(
            fixture.EXPERIMENT.replace('model { builtin: "vgg16" }', "")
            + 'model { builtin: "alexnet" }\nmodel { builtin: "resnet152" shrink: 8 }\n'
        )
        files = _drawn(results)
        for name in (
            "placements_full_none",
            "speedup_alexnet_none",
            "link_use",
            "shard_bytes_resnet152_shrink8",
            "iteration_time_resnet152_shrink8",
        ):
            self.assertIn(f"{name}.svg", files)
        text = report.write(results, ["placements_full_none", "link_use"], None, "")
        self.assertIn("| alexnet | 4 | 2 | memory-based | full |", text)
        self.assertIn("| resnet152-shrink8 shrunk 8 times | 4 | 2 | memory-based | full |", text)
        self.assertIn("![placements full none](placements_full_none.svg)", text)
        self.assertIn("![link use](link_use.svg)", text)
        self.assertIn("4 workers, 2 shards, memory-based", text)

    def test_shards_are_named_with_the_rates_of_their_links_where_these_differ(self):
        uneven = _drawn(_results(fixture.EXPERIMENT + "shard_link_gbps: 0.25\n"))
        # matplotlib draws letters as paths and keeps each text in a comment.
        texts = re.findall("<!-- (shard .*?) -->", uneven["link_use.svg"].decode())
        self.assertEqual(set(texts), {"shard 0, 0.25 Gb/s", "shard 1, 1 Gb/s"})
        texts = re.findall("<!-- (shard .*?) -->", _drawn_in_order()["link_use.svg"].decode())
        self.assertEqual(set(texts), {"shard 0", "shard 1"})

    def test_charts_and_tables_do_not_depend_on_the_order_in_which_the_runs_were_made(self):
        mixed = _results(order=lambda runs: [runs[i] for i in (3, 0, 2, 1)])
        self.assertEqual(report.write(mixed, [], None, ""), report.write(_results(), [], None, ""))
        for name, content in _drawn(mixed).items():
            self.assertEqual(content, _drawn_in_order()[name], name)

    def test_lines_join_neighbours_on_the_axis_whatever_the_order_of_the_config(self):
        falling = fixture.EXPERIMENT.replace("workers: [1, 4]", "workers: [4, 1]")
        files = _drawn(_results(falling))
        for name, content in files.items():
            self.assertEqual(content, _drawn_in_order()[name], name)
        svg = files["speedup_none.svg"].decode()
        lines = re.findall(r'<path d="([^"]*)" clip-path[^>]*stroke-linecap: square', svg)
        self.assertNotEqual(lines, [])
        for line in lines:
            across = [float(x) for x in re.findall(r"[ML] (\S+) ", line)]
            self.assertEqual(across, sorted(across))


if __name__ == "__main__":
    unittest.main()
