"""A worker of the library through `_handle`: what Worker and Optimizer have no method of their own
for."""

import ctypes
import unittest

from tests.python import fixture

import evenshard  # noqa: E402
from evenshard import _library, errors
from evenshard._handle import Declared, Handle

_ABORTED = errors.STATUSES.index("ABORTED")

_TENSORS = [Declared("a.w", (20,)), Declared("b.w", (3,)), Declared("c.w", ())]


def _refusal(call, *arguments):
    try:
        call(*arguments)
    except evenshard.Error as error:
        return str(error)
    return ""


class _Failing:
    """A library whose last call has failed."""

    def __init__(self, message, kind, state=b""):
        self.message = lambda: message
        self.last_error_kind = lambda: kind
        self.differing_state = lambda: state


class ErrorsTest(unittest.TestCase):
    def test_kinds_are_told_by_their_number_and_not_by_a_sentence(self):
        sentence = b"the run has gone back to a checkpoint"
        for message in (sentence, b"", b"what it says tomorrow"):
            error = _library.error(_Failing(message, errors.WENT_BACK), _ABORTED)
            self.assertIsInstance(error, evenshard.WentBack)
            self.assertIn("resume()", str(error))
            self.assertFalse(error.run_has_failed)
        error = _library.error(_Failing(sentence, errors.OTHER), _ABORTED)
        self.assertIs(type(error), evenshard.Aborted)
        self.assertFalse(error.run_has_failed)

    def test_a_failed_run_is_told_by_its_number_whatever_the_code(self):
        for code, status in enumerate(errors.STATUSES):
            error = _library.error(_Failing(b"it ended", errors.RUN_FAILED), code)
            self.assertTrue(error.run_has_failed)
            self.assertEqual((str(error), error.status), ("it ended", status))
            self.assertEqual(error.differing_state, "")

    def test_the_state_that_differs_is_told_beside_the_kind(self):
        for kind in (errors.OTHER, errors.RUN_FAILED):
            failing = _Failing(b"it differs", kind, b"the sampler")
            error = _library.error(failing, errors.STATUSES.index("FAILED_PRECONDITION"))
            self.assertEqual(error.differing_state, "the sampler")


class EncodedTest(unittest.TestCase):
    def test_texts_for_people_are_utf_8(self):
        for text in ("half \ud83d", "no UTF-8 \udcff", "a\0b", "\u20ac"):
            _library.told(text).decode()
            self.assertNotIn(b"\0", _library.told(text))
        self.assertEqual(_library.encoded("/\udcff"), b"/\xff")
        with self.assertRaisesRegex(evenshard.InvalidArgument, "has a NUL"):
            _library.encoded("a\0b")


class LifetimeTest(unittest.TestCase):
    def test_the_worker_lives_while_a_call_uses_it(self):
        """close() in another thread, or in a signal handler, in the middle of a call."""
        destroyed = []
        owned = [_library.Owned(ctypes.c_void_p(5), destroyed.append)]

        @ctypes.CFUNCTYPE(ctypes.c_int, ctypes.c_void_p)
        def function(pointer):
            owned.clear()
            return len(destroyed) + pointer

        function.argtypes = [ctypes.c_void_p]
        self.assertEqual(function(owned[0]), 5)
        self.assertEqual(len(destroyed), 1)


class LeavingTest(unittest.TestCase):
    def joined(self):
        """What both workers wait at: one that gives up sooner would end the other one's join()."""
        return fixture.multiprocessing.get_context("fork").Barrier(2)

    def test_a_worker_that_cannot_finish_says_so_although_its_memory_is_in_use(self):
        def work(rank):
            handle = Handle(_TENSORS)
            handle.join()
            kept = handle.parameters(0)
            handle.begin()
            handle.push(0)
            joined.wait(fixture.PATIENCE_SECONDS)
            if rank == 1:
                error = _refusal(handle.close)
            else:
                error = _refusal(lambda: (handle.push(1), handle.push(2), handle.wait_all()))
                handle.close(error)
            return error, len(kept)

        joined = self.joined()
        with fixture.Cluster(1, workers=2) as cluster:
            values = fixture.run_workers(self, cluster, work, workers=2)
        self.assertIn("must be pushed before this wait", values[1][0])
        self.assertIn("must be pushed before this wait", values[0][0])

    def test_an_empty_reason_is_one(self):
        def work(rank):
            handle = Handle(_TENSORS)
            handle.join()
            if rank == 0:
                handle.begin()
                handle.push_several([0, 1, 2])
            joined.wait(fixture.PATIENCE_SECONDS)
            if rank == 1:
                handle.close("")
                return ""
            error = _refusal(handle.wait_all)
            handle.close(error)
            return error

        joined = self.joined()
        with fixture.Cluster(1, workers=2) as cluster:
            values = fixture.run_workers(self, cluster, work, workers=2)
        self.assertIn("the program gave no reason", values[0])


class SeveralTensorsTest(unittest.TestCase):
    def run_one(self, work, schedule):
        with fixture.Cluster(2, workers=1, schedule=schedule) as cluster:
            return fixture.run_workers(self, cluster, work, workers=1)[0]

    def test_what_was_pushed_together_is_received(self):
        def work(rank):
            handle = Handle(_TENSORS)
            handle.join()
            found = [handle.received(0), handle.received(2)]
            for i in range(3):
                handle.gradients(i)[:] = [1.0] * len(handle.gradients(i))
            handle.begin()
            found.append(handle.received(0))
            handle.push_several([2, 0])
            handle.wait(2)
            handle.wait(0)
            found += [handle.received(i) for i in range(3)]
            refusal = _refusal(handle.push_several, [1, 0])
            handle.push(1)  # it has not been
            child = fixture.Process(handle.received, 0).outcome()
            unasked = fixture.Process(
                lambda: handle._library.received(handle._memory.pointer, 0)
            ).outcome()
            handle.wait_all()
            found.append(handle.received(0))
            handle.begin()
            handle.push_several([0, 1], contribution=_library.ZEROS)
            handle.push_several([2])
            handle.wait_all()
            values = [round(handle.parameters(i)[0], 5) for i in range(3)]
            handle.close()
            return found, refusal, (child.error, unasked.value), values

        found, refusal, child, values = self.run_one(work, "FULL")
        self.assertEqual(found, [3, 1, 0, 1, 0, 1, 3])
        self.assertIn("a.w has been pushed in this iteration already", refusal)
        self.assertIn("was forked", child[0])
        self.assertEqual(child[1], 0)
        self.assertEqual(values, [-0.1, -0.1, -0.2])

    def test_nothing_comes_early_when_everything_is_exchanged_at_once(self):
        def work(rank):
            handle = Handle(_TENSORS)
            handle.join()
            handle.begin()
            handle.push_several([0, 1])
            refusal = _refusal(handle.wait, 0)
            found = [handle.phase, handle.received(0), handle.failure]
            found += [handle.is_pushed(i) for i in range(3)]
            handle.push(2)
            handle.wait(0)
            found.append(handle.received(0) >= 1)
            handle.wait_all()
            found += [handle.phase, handle.received(0), handle.iteration]
            handle.close()
            return found, refusal

        found, refusal = self.run_one(work, "SEQUENTIAL")
        self.assertEqual(
            found, [_library.PUSHING, 0, None, True, True, False, True, _library.IDLE, 3, 1]
        )
        self.assertIn("must be pushed before this wait, first c.w", refusal)


if __name__ == "__main__":
    unittest.main()
