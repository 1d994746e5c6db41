"""The order of the copies to and from a CUDA device, with a stand-in for the device.

Streams of the stand-in are queues: what is queued on one runs when something waits for it, so that
a missing wait is a wrong number.
"""

import contextlib
import ctypes
import unittest

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    from torch import nn

    from evenshard import _library
    from evenshard._torch import model as _model
    from evenshard._torch import placement as _placement


class _Stream:
    def __init__(self, device=None):
        self.queue = []

    def add(self, work):
        self.queue.append(work)

    def run(self):
        """Runs all that was queued so far."""
        work, self.queue = self.queue, []
        for item in work:
            item()

    def wait_stream(self, other):
        self.wait_event(_Event(other))

    def wait_event(self, event):
        self.add(event.synchronize)

    def synchronize(self):
        self.run()


class _Event:
    """A mark on a stream."""

    def __init__(self, stream=None):
        self.stream = None
        self.is_done = False
        if stream is not None:
            self.record(stream)

    def record(self, stream):
        self.stream = stream
        stream.add(self._reached)

    def _reached(self):
        self.is_done = True

    def query(self):
        return self.is_done

    def synchronize(self):
        while not self.is_done:
            self.stream.queue.pop(0)()


class _Cuda:
    """torch.cuda. Copies are queued by tensors of the class `_OnDevice`."""

    def __init__(self, code=0):
        self.computing = _Stream()
        self._current = self.computing
        self.locked = {}
        self.registered_on = set()
        self._device = "cuda:0"
        self._code = code
        self.Stream = _Stream
        self.Event = _Event

    def current_stream(self, device=None):
        return self._current

    @contextlib.contextmanager
    def stream(self, stream):
        before, self._current = self._current, stream
        try:
            yield
        finally:
            self._current = before

    @contextlib.contextmanager
    def device(self, device):
        before, self._device = self._device, str(device)
        try:
            yield
        finally:
            self._device = before

    def cudart(self):
        return self

    def require_locked(self, tensor):
        """As CUDA does of memory that is locked in part."""
        begin, size = tensor.data_ptr(), tensor.numel() * tensor.element_size()
        for locked, locked_size in self.locked.items():
            if begin < locked + locked_size and locked < begin + size and not (
                locked <= begin and begin + size <= locked + locked_size
            ):
                raise RuntimeError("CUDA error: invalid argument")

    def cudaHostRegister(self, begin, size, flags):
        self.registered_on.add(self._device)
        if self._code == 0:
            self.locked[begin] = size
        return self._code

    def cudaHostUnregister(self, begin):
        del self.locked[begin]


class _Handle:
    """The exchanged memory of tensors, in one block for each kind, at multiples of 64 bytes."""

    def __init__(self, tensors):
        self._types = [t.type for t in tensors]
        self._sizes = [t.tensor.numel() for t in tensors]
        self._offsets = []
        total = 0
        for size in self._sizes:
            self._offsets.append(total)
            total += -(-size // 16) * 16
        self._blocks = [(ctypes.c_float * total)() for _ in range(2)]

    def _array(self, block, i, element=ctypes.c_float):
        return (element * self._sizes[i]).from_buffer(block, 4 * self._offsets[i])

    def parameters(self, i):
        is_half = self._types[i] != _library.FLOAT32
        return self._array(self._blocks[0], i, ctypes.c_uint16 if is_half else ctypes.c_float)

    def gradients(self, i):
        if self._types[i] != _library.BFLOAT16:
            return self._array(self._blocks[1], i)
        # Side by side, so that they take half of the block.
        return (ctypes.c_uint16 * self._sizes[i]).from_buffer(
            self._blocks[1], 2 * self._offsets[i]
        )

    def assigned(self, i):
        return self._array(self._blocks[1], i)


def _make(cuda, dtype=None, model=None):
    model = (model or nn.Sequential(nn.Linear(3, 5), nn.BatchNorm1d(5))).to(dtype)
    tensors = _model.tensors_of(model)
    handle = _Handle(tensors)
    placement = _placement.DevicePlacement(handle, tensors, torch.device("cpu"), cuda)
    return model, tensors, handle, placement


@unittest.skipIf(torch is None, "PyTorch is not installed: copies to and from a device")
class DevicePlacementTest(unittest.TestCase):
    def setUp(self):
        self.cuda = _Cuda()
        # A copy that does not block is queued on the current stream.
        self._copy = torch.Tensor.copy_
        cuda, plain = self.cuda, self._copy

        def copy(target, source, non_blocking=False):
            if non_blocking:
                cuda.require_locked(target)
                cuda.require_locked(source)
                cuda.current_stream().add(torch.no_grad()(lambda: plain(target, source)))
                return target
            return plain(target, source)

        torch.Tensor.copy_ = copy
        self.addCleanup(setattr, torch.Tensor, "copy_", plain)
        self._record = torch.Tensor.record_stream
        torch.Tensor.record_stream = lambda *_: None
        self.addCleanup(setattr, torch.Tensor, "record_stream", self._record)
        self.model, self.tensors, self.handle, self.placement = _make(self.cuda)

    def test_memory_is_page_locked_as_one_block_of_each_kind(self):
        begins = [
            ctypes.addressof(self.handle.parameters(0)), ctypes.addressof(self.handle.gradients(0))
        ]
        self.assertEqual(list(self.cuda.locked), begins)
        for size in self.cuda.locked.values():
            self.assertEqual(size, 4 * (16 + 16 + 16 + 16 + 16 + 16 + 1))
        self.placement.release()
        self.assertEqual(self.cuda.locked, {})

    def test_memory_is_locked_on_the_device_of_the_model(self):
        self.assertEqual(self.cuda.registered_on, {"cpu"})

    def test_what_is_assigned_may_reach_beyond_what_is_locked(self):
        layers = nn.Sequential(*(nn.Linear(5, 5) for _ in range(3)))
        _, tensors, handle, placement = _make(self.cuda, torch.bfloat16, layers)
        numbers = list(range(len(tensors)))
        for i in numbers:
            placement.stage_assigned(i, torch.full(tensors[i].shape, 1.5 + i))
        self.assertEqual(placement.staged(wait=True), numbers)
        for i in numbers:
            self.assertEqual(set(handle.assigned(i)), {1.5 + i})

    def test_copies_in_both_directions_can_be_waited_for(self):
        self.placement.stage(1, torch.ones(5), None)
        ctypes.memset(self.handle.parameters(0), 0, 60)
        self.placement.received([(0, self.tensors[0].value)])
        self.placement.await_copies()
        self.assertEqual(list(self.handle.gradients(1)), [1.0] * 5)
        self.assertEqual(self.model[0].weight.sum().item(), 0)

    def test_memory_that_cannot_be_locked_is_a_warning(self):
        with self.assertWarnsRegex(UserWarning, "CUDA's error 2"):
            _, _, _, placement = _make(_Cuda(code=2))
        placement.release()

    def test_a_gradient_is_ready_when_it_has_been_copied(self):
        gradient = torch.zeros(5, 3)
        self.cuda.computing.add(lambda: gradient.fill_(2))  # the backward pass
        self.placement.stage(0, gradient, None)
        self.assertEqual(self.placement.staged(wait=False), [])
        self.placement.stage(1, torch.full((5,), 3.0), None)
        self.assertEqual(self.placement.staged(wait=True), [0, 1])
        self.assertEqual(list(self.handle.gradients(0)), [2.0] * 15)
        self.assertEqual(list(self.handle.gradients(1)), [3.0] * 5)
        self.assertEqual(self.placement.staged(wait=True), [])

    def test_a_gradient_is_divided_by_the_scale(self):
        self.placement.stage(1, torch.full((5,), 8.0), torch.tensor(4.0))
        self.assertEqual(self.placement.staged(wait=True), [1])
        self.assertEqual(list(self.handle.gradients(1)), [2.0] * 5)

    def test_bfloat16_is_staged_and_received_as_it_is(self):
        model, tensors, handle, placement = _make(self.cuda, torch.bfloat16)
        placement.stage(1, torch.full((5,), 3.0, dtype=torch.bfloat16), None)
        self.assertEqual(placement.staged(wait=True), [1])
        self.assertEqual(list(handle.gradients(1)), [0x4040] * 5)
        handle.parameters(1)[:] = [0x40A0] * 5
        placement.received([(1, tensors[1].value)])
        placement._stream.run()
        self.assertEqual(model[0].bias.tolist(), [5.0] * 5)
        placement.stage_assigned(1, torch.full((5,), 1.1))
        self.assertEqual(placement.staged(wait=True), [1])
        self.assertEqual(list(handle.assigned(1)), [ctypes.c_float(1.1).value] * 5)

    def test_a_scale_is_taken_out_of_float16_in_float32(self):
        _, _, handle, placement = _make(self.cuda, torch.float16)
        placement.stage(1, torch.full((5,), 8.0, dtype=torch.float16), torch.tensor(2.0**30))
        self.assertEqual(placement.staged(wait=True), [1])
        self.assertEqual(list(handle.gradients(1)), [2.0**-27] * 5)

    def test_a_running_statistic_is_pushed_as_what_was_received_minus_what_it_is(self):
        self.placement.initialize()
        mean = [t.name for t in self.tensors].index("1.running_mean")
        self.model[1].running_mean += 3
        self.placement.stage_change(mean)
        self.assertEqual(self.placement.staged(wait=True), [mean])
        self.assertEqual(list(self.handle.gradients(mean)), [-3.0] * 5)

    def test_parameters_are_copied_after_their_last_use_and_before_the_next(self):
        weight = self.model[0].weight
        weight.data.fill_(1)
        seen = []
        use = lambda: seen.append(float(weight[0, 0]))  # noqa: E731
        self.cuda.computing.add(use)  # the last of the backward pass
        self.placement.pass_done()
        ctypes.memset(self.handle.parameters(0), 0, 60)
        self.placement.received([(0, self.tensors[0].value)])
        self.cuda.computing.add(use)  # the next forward pass
        self.placement._stream.run()  # as early as it may
        self.cuda.computing.run()
        self.assertEqual(seen, [1.0, 0.0])

    def test_what_is_not_noted_as_done_is_waited_for(self):
        weight = self.model[0].weight
        weight.data.fill_(1)
        self.placement.pass_done()
        self.placement.stage(1, torch.ones(5), None)  # another backward pass
        seen = []
        self.cuda.computing.add(lambda: seen.append(float(weight[0, 0])))
        self.placement.received([(0, self.tensors[0].value)])
        self.placement._stream.run()
        self.assertEqual(seen, [1.0])


if __name__ == "__main__":
    unittest.main()
