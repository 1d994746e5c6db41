import contextlib
import os
import signal
import unittest

from tests.chaos import campaign


class CampaignTest(unittest.TestCase):
    def test_what_is_being_started_at_ctrl_c_is_ended(self):
        for number in (signal.SIGINT, signal.SIGTERM):
            started, ended = [], []
            with self.assertRaises(KeyboardInterrupt), contextlib.ExitStack() as stack:
                with campaign.uninterrupted():
                    os.kill(os.getpid(), number)
                    started.append(number)
                    stack.callback(ended.append, number)
                self.fail("went on")
            self.assertEqual((started, ended), ([number], [number]))
            self.assertIs(signal.getsignal(signal.SIGINT), signal.default_int_handler)

    def test_a_signal_that_is_ignored_stays_so(self):
        self.addCleanup(signal.signal, signal.SIGINT, signal.signal(signal.SIGINT, signal.SIG_IGN))
        with campaign.uninterrupted():
            os.kill(os.getpid(), signal.SIGINT)


if __name__ == "__main__":
    unittest.main()
