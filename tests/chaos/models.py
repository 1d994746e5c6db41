"""Reads a model as `launch --save` writes it."""

import array
import json
import struct
import sys


def tensors(data):
    """Returns the float32 values of each tensor by its name. `data`: a file in the safetensors
    format, or nothing, of which there are no tensors."""
    if not data:
        return {}
    (header_bytes,) = struct.unpack_from("<Q", data)
    begin = 8 + header_bytes
    header = json.loads(data[8:begin])
    found = {}
    for name, about in header.items():
        if name == "__metadata__":
            continue
        if about["dtype"] != "F32":
            raise ValueError(f"{name}: is {about['dtype']}, allowed: F32")
        first, end = about["data_offsets"]
        values = array.array("f", data[begin + first:begin + end])
        if sys.byteorder == "big":
            values.byteswap()
        found[name] = values
    return found
