"""The committed bytes of the block-scaled encodings are those of the reference."""

import unittest

from tests.golden import block_scaled_reference as reference


class ReferenceTest(unittest.TestCase):
    def test_the_golden_file_is_what_the_reference_makes(self):
        with open('tests/golden/block_scaled.golden', encoding='ascii') as file:
            self.assertEqual(file.read().splitlines(), list(reference.golden_lines()))


if __name__ == '__main__':
    unittest.main()
