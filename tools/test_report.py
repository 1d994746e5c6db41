#!/usr/bin/env python3
"""Counts the test cases of all test targets of a `bazel test`.

Reads Bazel's build event file, and from each target's log the summary that Catch2 or Python's
unittest prints at its end. A fuzzer, which libFuzzer ends with the number of its runs, is one test
case. A target without a summary (it crashed, ran out of time, was not built
or did not run) counts as one failure and is named. Skipped test cases,
which Catch2 tests mark by a line "SKIPPED: why", do not count, and neither does a target that this
machine cannot build (`target_compatible_with`); a line says how many there are. Each --failed is
one more failure. The last line is "N passed, M failed". The exit code is 0 only if M = 0 and N > 0.
"""

import argparse
import json
import pathlib
import re
import sys
import urllib.parse

ALL_PASSED = re.compile(r"^All tests passed \(.* in (\d+) test cases?\)$", re.MULTILINE)
SOME_FAILED = re.compile(r"^test cases: +\d+((?: \| +\d+ [a-z ]+)+)$", re.MULTILINE)
COUNT = re.compile(r"(\d+) (passed|failed as expected|failed)")
SKIPPED = re.compile(r"^SKIPPED: ", re.MULTILINE)
UNITTEST = re.compile(r"^Ran (\d+) tests? in .*\n\n(?:OK|FAILED)(?: \((.*)\))?$", re.MULTILINE)
UNITTEST_FAILURE = re.compile(r"^(?:FAIL|ERROR): (\S+ \([\w.]+\))", re.MULTILINE)
FUZZED = re.compile(r"^Done \d+ runs in \d+ second\(s\)$", re.MULTILINE)


def read_summary(log):
    """Returns the numbers of test cases that passed, failed and were skipped, or None."""
    skipped = len(SKIPPED.findall(log))
    if matches := ALL_PASSED.findall(log):
        return int(matches[-1]) - skipped, 0, skipped
    if matches := SOME_FAILED.findall(log):
        counts = {kind: int(count) for count, kind in COUNT.findall(matches[-1])}
        return (
            counts.get("passed", 0) + counts.get("failed as expected", 0) - skipped,
            counts.get("failed", 0),
            skipped,
        )
    if matches := UNITTEST.findall(log):
        ran, details = matches[-1]
        counts = dict(part.split("=") for part in details.split(", ") if part)
        # Several subtests of a test case may fail, and a class or module may fail without one.
        failures = set(UNITTEST_FAILURE.findall(log))
        cases = {name for name in failures if not name.startswith(("setUp", "tearDown"))}
        unexpected = int(counts.get("unexpected successes", 0))
        skipped = int(counts.get("skipped", 0))
        passed = int(ran) - len(cases) - unexpected - skipped
        return passed, len(failures) + unexpected, skipped
    if FUZZED.search(log):
        return 1, 0, 0
    return None


def read_events(path):
    """Returns each target's overall status and the paths of its logs, and the targets that this
    machine cannot build."""
    statuses, logs, incompatible = {}, {}, set()
    lines = path.read_text().splitlines() if path.exists() else []
    for line in lines:
        try:
            event = json.loads(line)
        except json.JSONDecodeError:
            continue  # the last line, if Bazel itself was ended
        if summary := event["id"].get("testSummary"):
            statuses[summary["label"]] = event.get("testSummary", {}).get(
                "overallStatus", "NO_STATUS"
            )
        if completed := event["id"].get("targetCompleted"):
            if event.get("aborted", {}).get("reason") == "SKIPPED":
                incompatible.add(completed["label"])
        if result := event["id"].get("testResult"):
            for output in event.get("testResult", {}).get("testActionOutput", []):
                if output["name"] == "test.log":
                    part = (result["label"], result.get("run"), result.get("shard"))
                    uri = urllib.parse.urlparse(output["uri"])
                    # A later attempt replaces an earlier one.
                    logs[part] = pathlib.Path(urllib.parse.unquote(uri.path))
    return statuses, logs, incompatible


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--failed", action="append", default=[], help="what else has failed")
    parser.add_argument("--events", type=pathlib.Path, required=True)
    parser.add_argument("--targets", type=pathlib.Path, required=True)
    arguments = parser.parse_args()

    passed = 0
    skipped = 0
    failures = [(what, 1) for what in arguments.failed]  # and how many each counts for
    statuses, logs, incompatible = read_events(arguments.events)
    for target in sorted(set(arguments.targets.read_text().split()) - incompatible):
        status = statuses.get(target, "NO_STATUS")
        parts = [path for (label, _, _), path in sorted(logs.items()) if label == target]
        summaries = [
            read_summary(path.read_text(errors="replace")) if path.exists() else None
            for path in parts
        ]
        known = list(filter(None, summaries))
        target_failed = sum(failed for _, failed, _ in known)
        passed += sum(count for count, _, _ in known)
        skipped += sum(count for _, _, count in known)
        if target_failed > 0:
            failures.append((f"{target}: {target_failed} failed", target_failed))
        elif status != "PASSED":
            failures.append((f"{target}: {status}", 1))
        elif None in summaries or not summaries:
            failures.append((f"{target}: no summary of its test cases in its log", 1))

    failed = sum(count for _, count in failures)
    if passed + failed == 0:
        failures.append(("no test ran", 0))
    for what, _ in failures:
        print("FAILED", what)
    if skipped > 0:
        print(f"test cases skipped: {skipped}")
    if incompatible:
        print(f"targets that this machine cannot build: {len(incompatible)}")
    print(f"{passed} passed, {failed} failed")
    return 0 if failed == 0 and passed > 0 else 1


if __name__ == "__main__":
    sys.exit(main())
