"""Where fields stand in a protobuf text."""

import unittest

from experiments.runs.places import Places

_TEXT = """\
# comment { with: "signs"
cluster {   # line 2
  model < builtin: 'a "quoted" {name}'
          shrink: 4 >
}
workers: [1,
  2]; shards: 1
partition { scheme: AUTO }
partition: {
  placement:
    GREEDY
}
hosts { ssh: "ssh" " -q" port: 7 }
"""


class PlacesTest(unittest.TestCase):
    def test_fields_are_found_at_the_line_of_their_value(self):
        places = Places(_TEXT)
        for field, line in {
            "cluster": 2,
            "cluster.model.builtin": 3,
            "cluster.model.shrink": 4,
            "workers": 6,
            "workers[1]": 7,
            "shards[0]": 7,
            "partition.scheme": 8,
            "partition[1]": 9,
            "partition[1].placement": 11,
            "hosts.ssh": 13,
            "hosts.port": 13,
        }.items():
            with self.subTest(field):
                self.assertEqual(places.line(field), line)

    def test_a_missing_field_is_where_its_message_is(self):
        places = Places(_TEXT)
        self.assertEqual(places.line("cluster.model.layer[2].conv"), 3)
        self.assertEqual(places.line("partition[1].scheme"), 9)
        self.assertEqual(places.line("repeats"), 1)


if __name__ == "__main__":
    unittest.main()
