"""tools/check_style, in a repository of its own: what it finds, and what it lets pass."""

import os
import shutil
import subprocess
import tempfile
import unittest

_GOOD = "tools: say more"


@unittest.skipIf(shutil.which("git") is None, "this machine has no git")
class CheckStyleTest(unittest.TestCase):
    def setUp(self):
        self.root = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, self.root)
        os.mkdir(os.path.join(self.root, "tools"))
        shutil.copy("tools/check_style", os.path.join(self.root, "tools"))
        shutil.copy(".clang-format", self.root)
        self.git("init", "--quiet")

    def git(self, *arguments):
        subprocess.run(
            ["git", "-c", "user.name=n", "-c", "user.email=e", *arguments],
            cwd=self.root, check=True, timeout=60,
        )

    def commit(self, subject, **files):
        for name, text in files.items():
            with open(os.path.join(self.root, name), "w", encoding="utf-8") as file:
                file.write(text)
        self.git("add", ".")
        self.git("commit", "--quiet", "--allow-empty", "--message", subject)

    def check(self, *checks):
        done = subprocess.run(
            ["tools/check_style", *checks],
            cwd=self.root, capture_output=True, text=True, check=False, timeout=60,
        )
        return done.returncode, done.stdout + done.stderr

    def test_a_wrong_argument_is_named_and_help_printed(self):
        code, text = self.check("widht")
        self.assertEqual(code, 2)
        self.assertIn('check_style: unknown check "widht"', text)
        code, text = self.check("--help")
        self.assertEqual(code, 0)
        self.assertTrue(text.startswith("./tools/check_style [CHECK ...]\n"), text)

    def test_without_a_commit_there_is_nothing_to_check(self):
        self.assertEqual(
            self.check("commits"),
            (0, "check_style: this is not a checkout of git, so nothing is checked\n"),
        )

    def test_a_line_of_101_characters_is_found_except_in_prose(self):
        self.commit(_GOOD, good="é" * 100, prose_md="")
        self.assertEqual(self.check("width"), (0, "check_style: passed: width\n"))
        os.rename(os.path.join(self.root, "prose_md"), os.path.join(self.root, "prose.md"))
        self.commit(_GOOD, **{"prose.md": "x" * 101, "bad.proto": "\n" + "x" * 101 + "\n"})
        code, text = self.check("width")
        self.assertEqual(code, 1)
        self.assertIn("bad.proto:2:xxx", text)
        self.assertNotIn("prose", text)
        self.assertTrue(text.endswith("check_style: failed: width\n"), text)

    def test_a_readme_of_121_lines_is_found(self):
        self.commit(_GOOD, **{"README.md": "x\n" * 120})
        self.assertEqual(self.check("width")[0], 0)
        self.commit(_GOOD, **{"README.md": "x\n" * 121})
        self.assertEqual(
            self.check("width"),
            (1, "README.md has 121 lines, allowed: 120\ncheck_style: failed: width\n"),
        )

    def test_cpp_that_is_not_formatted_is_found(self):
        self.commit(_GOOD, **{"good.cc": "int f() { return 1; }\n"})
        self.assertEqual(self.check("format")[0], 0)
        self.commit(_GOOD, **{"bad.h": "int  f();\n"})
        code, text = self.check("format")
        self.assertEqual(code, 1)
        self.assertIn("bad.h:1:", text)

    def test_subjects(self):
        for subject in [_GOOD, "server/rpc: end a stream", "a: " + "x" * 69]:
            self.commit(subject)
            self.assertEqual(self.check("commits")[0], 0, subject)
        for subject in ["Say more", "tools: say more.", "a: " + "x" * 70]:
            self.commit(subject)
            code, text = self.check("commits")
            self.assertEqual(code, 1, subject)
            self.assertIn(f'commit "{subject}": {len(subject)} characters; allowed: ', text)

    def test_subjects_are_those_since_the_last_tag_or_what_a_remote_has_and_else_the_newest(self):
        self.commit("Old")
        self.commit(_GOOD)
        self.git("tag", "not-a-version", "HEAD^")
        self.assertEqual(self.check("commits")[0], 0)
        for fixed in (["tag", "v1"], ["update-ref", "refs/remotes/origin/main", "HEAD"]):
            self.git(*fixed)
            self.assertEqual(self.check("commits")[0], 0)
            self.commit("Wrong")
            self.commit(_GOOD)
            self.assertEqual(self.check("commits")[0], 1, fixed)


if __name__ == "__main__":
    unittest.main()
