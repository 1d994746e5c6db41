"""Programs that end, or are ended, with all that they started."""

import tempfile
import time
import unittest

from tools.gpu.processes import ProgramError, Responder, run


def _is_alive(pid):
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rsplit(")", 1)[1].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):  # the latter while it ends
        return False


def _ends(pid):
    """Whether a process that was killed is gone, as it is soon after."""
    deadline = time.monotonic() + 60
    while _is_alive(pid) and time.monotonic() < deadline:
        time.sleep(0.01)
    return not _is_alive(pid)


class ProcessesTest(unittest.TestCase):
    def setUp(self):
        self.log = tempfile.TemporaryFile("a+b")
        self.addCleanup(self.log.close)

    def run_shell(self, script, seconds=60):
        return run(["sh", "-c", script], seconds, self.log)

    def test_output_and_exit_code(self):
        self.assertEqual(self.run_shell("echo out; echo error >&2"), "out\nerror\n")
        with self.assertRaisesRegex(ProgramError, r"^exit code 3: out \| error$"):
            self.run_shell("echo out; echo error >&2; exit 3")

    def test_the_output_of_each_program_is_its_own_and_the_log_has_all(self):
        self.run_shell("echo one")
        self.assertEqual(self.run_shell("echo two"), "two\n")
        self.log.seek(0)
        self.assertEqual(
            self.log.read().decode(), "\n$ sh -c echo one\none\n\n$ sh -c echo two\ntwo\n"
        )

    def test_a_program_that_takes_too_long_is_ended_with_its_children(self):
        with self.assertRaisesRegex(ProgramError, "^did not end within"):
            self.run_shell("sleep 1000 & echo $!; wait", seconds=0.5)
        self.log.seek(0)
        self.assertTrue(_ends(int(self.log.read().split()[-1])))

    def test_what_a_program_leaves_behind_is_ended(self):
        self.assertTrue(_ends(int(self.run_shell("sleep 1000 >/dev/null & echo $!"))))

    def test_a_program_that_does_not_exist(self):
        with self.assertRaisesRegex(ProgramError, "^/no/program: No such file"):
            run(["/no/program"], 1, self.log)

    def responder(self, script):
        return Responder(["sh", "-c", script], self.log)

    def test_requests_are_answered_and_other_lines_passed_over(self):
        def number(line):
            return int(line) if line.isdigit() else None

        with self.responder("echo 0; while read x; do echo noise; echo $((x + 1)); done") as asked:
            self.assertEqual(asked.ask(None, number, 60), 0)
            self.assertEqual(asked.ask("4", number, 60), 5)
            self.assertEqual(asked.ask("7", number, 60), 8)

    def test_a_program_that_ends_or_is_silent_is_an_error(self):
        with self.responder("exit 3") as asked:
            with self.assertRaisesRegex(ProgramError, "sh ended with exit code 3"):
                asked.ask("", str, 60)
        with self.responder("sleep 1000") as asked:
            with self.assertRaisesRegex(ProgramError, "sh did not answer within 0 s"):
                asked.ask("", str, 0.1)

    def test_a_late_answer_is_not_taken_for_that_of_the_next_request(self):
        with self.responder("read x; sleep 0.2; echo late; cat") as asked:
            for _ in range(2):
                with self.assertRaisesRegex(ProgramError, "did not answer within 0 s"):
                    asked.ask("", str, 0.05)
                time.sleep(0.3)

    def test_a_responder_is_ended_with_its_children(self):
        with self.responder("sleep 1000 & echo $!; wait") as asked:
            child = asked.ask(None, int, 60)
            self.assertTrue(_is_alive(child))
        self.assertTrue(_ends(child))


if __name__ == "__main__":
    unittest.main()
