"""Checks a file against the published safetensors format, with nothing but Python's own library.

https://huggingface.co/docs/safetensors: 8 bytes with the length of the header, little-endian; a
header of JSON that begins with '{' and may be padded with spaces; and the data, which the tensors
cover without holes and without overlaps.
"""

import array
import json
import struct
import sys

BYTES = {"F64": 8, "F32": 4, "F16": 2, "BF16": 2}


def unique(pairs):
    names = [name for name, _ in pairs]
    assert len(names) == len(set(names)), "a key appears twice"
    return dict(pairs)


def main(path):
    with open(path, "rb") as file:
        contents = file.read()
    (length,) = struct.unpack("<Q", contents[:8])
    assert length <= 100_000_000, "the header is too long"
    assert length % 8 == 0, "the data is not aligned"
    text = contents[8 : 8 + length]
    assert len(text) == length and text.startswith(b"{"), "the header is cut short"
    header = json.loads(text.decode("utf-8"), object_pairs_hook=unique)
    metadata = header.pop("__metadata__", {})
    assert all(isinstance(value, str) for value in metadata.values()), "metadata is not text"
    data = contents[8 + length :]

    end = 0
    for name, tensor in sorted(header.items(), key=lambda item: item[1]["data_offsets"]):
        first, last = tensor["data_offsets"]
        assert first == end, f"{name} begins at {first}, but the one before it ends at {end}"
        elements = 1
        for size in tensor["shape"]:
            elements *= size
        assert last - first == elements * BYTES[tensor["dtype"]], f"{name} has the wrong size"
        end = last
        values = array.array("f", data[first:last])
        assert all(value == value for value in values), f"{name} has a NaN"
    assert end == len(data), f"{len(data) - end} bytes belong to no tensor"
    print(f"{len(header)} tensors, {end} bytes, {metadata}")


if __name__ == "__main__":
    main(sys.argv[1])
