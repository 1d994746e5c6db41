"""The folder of results: locked, resumable, of one experiment."""

import errno
import os
import subprocess
import sys
import tempfile
import unittest
from unittest import mock

from experiments.report.output_folder import OutputFolder, OutputFolderError
from experiments.runs import matrix
from tests.experiments import fixture

# Holds the folder until its input ends.
_HOLDER = """
import sys
sys.path[:0] = sys.argv[2:]
from experiments.report.output_folder import OutputFolder
folder = OutputFolder(sys.argv[1], {})
print("held", flush=True)
sys.stdin.read()
"""


class OutputFolderTest(unittest.TestCase):
    def setUp(self):
        scratch = tempfile.TemporaryDirectory()
        self.addCleanup(scratch.cleanup)
        self.path = os.path.join(scratch.name, "out")

    def test_a_folder_in_use_is_refused_and_says_by_whom_until_that_process_ends(self):
        with subprocess.Popen(
            [sys.executable, "-c", _HOLDER, self.path, *sys.path],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as holder:
            self.assertEqual(holder.stdout.readline(), "held\n")
            with self.assertRaisesRegex(OutputFolderError, f"in use .*process {holder.pid}"):
                OutputFolder(self.path, {})
            holder.kill()
        OutputFolder(self.path, {})

    def test_results_come_back_and_unfinished_runs_have_none(self):
        runs = matrix.runs(fixture.experiment())
        folder = OutputFolder(self.path, {})
        for run in runs:
            os.makedirs(folder.run_folder(run))
        folder.store(runs[2], {"iteration_seconds": [1.5]})
        with open(os.path.join(folder.run_folder(runs[3]), "result.json.part"), "w",
                  encoding="utf-8") as file:
            file.write('{"iter')
        self.assertEqual(
            folder.stored(runs, lambda value: True), {runs[2]: {"iteration_seconds": [1.5]}}
        )

    def test_a_run_of_programs_that_are_built_anew_meanwhile_is_not_stored(self):
        run = matrix.runs(fixture.experiment())[0]
        builds = iter(["first", "first", "second"])
        folder = OutputFolder(self.path, {}, lambda: next(builds))
        os.makedirs(folder.run_folder(run))
        folder.store(run, {"seconds": 1})
        with self.assertRaisesRegex(OutputFolderError, "built anew meanwhile"):
            folder.store(run, {"seconds": 2})
        self.assertEqual(folder.stored([run], lambda value: True), {run: {"seconds": 1}})

    def test_the_report_names_runs_of_other_builds(self):
        runs = matrix.runs(fixture.experiment())

        def open_by(build):
            folder = OutputFolder(self.path, {}, lambda: build)
            folder.stored(runs, lambda value: set(value) == {"seconds"})
            for run in runs:
                os.makedirs(folder.run_folder(run), exist_ok=True)
            return folder

        def report(folder):
            folder.write_report("# Title\n")
            with open(folder.file("report.md"), encoding="utf-8") as file:
                return file.read()

        folder = open_by(None)  # as before builds were noted
        folder.store(runs[0], {"seconds": 1})
        self.assertEqual(report(folder), "# Title\n")
        del folder
        folder = open_by("first")
        self.assertEqual(report(folder), "# Title\n")  # nothing else to tell it from
        folder.store(runs[1], {"seconds": 2})
        del folder
        folder = open_by("second")
        folder.store(runs[2], {"seconds": 3})
        others = ", ".join(sorted(run.id for run in runs[:2]))
        self.assertIn(f"than the rest: 2 of 3 runs, {others}.\n", report(folder))
        self.assertEqual(
            folder.stored(runs, lambda value: set(value) == {"seconds"}),
            {run: {"seconds": i} for i, run in enumerate(runs[:3], 1)},
        )
        del folder
        folder = open_by("first")
        others = ", ".join(sorted(run.id for run in (runs[0], runs[2])))
        self.assertIn(f"2 of 3 runs, {others}.\n", report(folder))
        del folder
        self.assertIn("2 of 3 runs", report(open_by("third")))

    def test_a_damaged_file_is_refused_with_its_name_and_what_is_wrong_with_it(self):
        runs = matrix.runs(fixture.experiment())
        folder = OutputFolder(self.path, {})
        os.makedirs(folder.run_folder(runs[1]))
        result = os.path.join(folder.run_folder(runs[1]), "result.json")
        for content in (b"", b'{"iter', b"\xff\xfe", b"[" * 100_000, b"[]", b"7"):
            with open(result, "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(OutputFolderError, "^[^\n]*result.json is damaged [^\n]*$"):
                folder.stored(runs, lambda value: isinstance(value, dict))
        del folder
        identity = os.path.join(self.path, "experiment.json")
        for content in (b"", b"{", b"null", b"\0" * 300):
            with open(identity, "wb") as file:
                file.write(content)
            with self.assertRaisesRegex(OutputFolderError, "^[^\n]*experiment.json is damaged "):
                OutputFolder(self.path, {})
        os.unlink(identity)
        os.mkdir(identity)
        with self.assertRaisesRegex(OutputFolderError, "^cannot read .*json: Is a directory$"):
            OutputFolder(self.path, {})

    def test_what_cannot_be_written_is_said_and_leaves_no_part(self):
        folder = OutputFolder(self.path, {})
        before = sorted(os.listdir(self.path))
        with mock.patch("os.fsync", side_effect=OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))):
            with self.assertRaisesRegex(
                OutputFolderError, "^cannot write .*/results.csv: No space left on device$"
            ):
                folder.write("results.csv", "text")
        self.assertEqual(sorted(os.listdir(self.path)), before)

    def test_a_file_that_is_a_symbolic_link_is_written_where_it_points(self):
        folder = OutputFolder(self.path, {})
        published = os.path.join(os.path.dirname(self.path), "published.md")
        os.symlink(published, folder.file("report.md"))
        for text in ("first", "second"):
            folder.write("report.md", text)
            self.assertTrue(os.path.islink(folder.file("report.md")))
            with open(published, encoding="utf-8") as file:
                self.assertEqual(file.read(), text)

    def test_results_of_another_experiment_are_refused(self):
        run = matrix.runs(fixture.experiment())[0]
        folder = OutputFolder(self.path, {"config": "none is stored"})
        del folder
        folder = OutputFolder(self.path, {"config": "one"})
        os.makedirs(folder.run_folder(run))
        folder.store(run, {})
        del folder
        OutputFolder(self.path, {"config": "one"})
        what = r"results of another config or network \(its experiment\.json\)"
        with self.assertRaisesRegex(OutputFolderError, what):
            OutputFolder(self.path, {"config": "two"})

    def test_a_folder_that_cannot_be_is_refused(self):
        with open(self.path, "w", encoding="utf-8"):
            pass
        with self.assertRaisesRegex(OutputFolderError, "cannot write to --out="):
            OutputFolder(self.path, {})


if __name__ == "__main__":
    unittest.main()
