#!/usr/bin/env python3
"""Prints the result of a training of tools/quickstart from the summary that launch writes.

    quickstart_report.py NAME SUMMARY
"""

import json
import pathlib
import sys


def main():
    name, path = sys.argv[1:]
    summary = json.loads(pathlib.Path(path).read_text())
    print(
        f"  {name + ':':6} {summary['final_accuracy']:.1%} of the held-out images right after"
        f" {summary['iterations']:,} iterations in {summary['seconds']:.1f} s\n"
    )


if __name__ == "__main__":
    main()
