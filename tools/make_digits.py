#!/usr/bin/env python3
"""Makes data/digits from the copy of the data set in Debian's python3-sklearn.

    apt-get download python3-sklearn
    dpkg -x python3-sklearn_*.deb sklearn
    tools/make_digits.py \
        sklearn/usr/lib/python3/dist-packages/sklearn/datasets/data/digits.csv.gz data/digits

A line of digits.csv is an image: 64 pixels row by row, each 0 to 16, then its
label. The same input gives the same bytes in every run with the same zlib.
"""

import argparse
import gzip
import pathlib
import struct
import sys

IMAGES, SIDE, LARGEST_PIXEL, CLASSES = 1797, 8, 16, 10
UNSIGNED_BYTES = 0x08  # the IDX code of the element type


def read_csv(path):
    """Returns the pixels and the labels, as bytes, in the order of the file."""
    pixels, labels = bytearray(), bytearray()
    with gzip.open(path, "rt", encoding="ascii") as lines:
        for number, line in enumerate(lines, 1):
            values = [int(value) for value in line.split(",")]
            if (len(values) != SIDE * SIDE + 1 or not 0 <= values[-1] < CLASSES
                    or not all(0 <= value <= LARGEST_PIXEL for value in values[:-1])):
                sys.exit(f"{path}:{number}: expected {SIDE * SIDE} pixels of 0 to "
                         f"{LARGEST_PIXEL} and a label of 0 to {CLASSES - 1}")
            pixels += bytes(values[:-1])
            labels.append(values[-1])
    if len(labels) != IMAGES:
        sys.exit(f"{path}: {len(labels)} images, expected {IMAGES}")
    return pixels, labels


def write_idx(path, dimensions, data):
    header = struct.pack(f">4B{len(dimensions)}I", 0, 0, UNSIGNED_BYTES, len(dimensions),
                         *dimensions)
    # No time and no name, so that the bytes depend on the content alone.
    with open(path, "wb") as out, gzip.GzipFile("", "wb", 9, out, mtime=0) as packed:
        packed.write(header + data)


def main():
    parser = argparse.ArgumentParser(description=__doc__,
                                     formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("csv", help="digits.csv.gz of scikit-learn")
    parser.add_argument("folder", type=pathlib.Path, help="where the IDX files go")
    arguments = parser.parse_args()
    pixels, labels = read_csv(arguments.csv)
    write_idx(arguments.folder / "images.idx3-ubyte.gz", (IMAGES, SIDE, SIDE), pixels)
    write_idx(arguments.folder / "labels.idx1-ubyte.gz", (IMAGES,), labels)


if __name__ == "__main__":
    main()
