"""What of an iteration is pushed and received when, with a stand-in for the library's worker."""

import ctypes
import unittest

from tests.python import fixture

from evenshard import _library, errors  # noqa: E402

torch = fixture.torch
if torch is not None:
    from torch import nn

    from evenshard._torch import model as _model
    from evenshard._torch import model_exchange as _model_exchange

_PUSHES = {_library.GRADIENT: "push", _library.ZEROS: "absent", _library.NOTHING: "nothing"}
_LARGE = 130  # a square of so many is pushed at once


class _Handle:
    """Notes the calls. Tensors come when a test puts them into `come`, or when they are waited
    for."""

    is_ring = compares_states = False
    waits_in_forward = pushes_early = True
    iteration = 0
    rank = 0

    def __init__(self, tensors):
        sizes = [item.tensor.numel() for item in tensors]
        self._memory = [[(ctypes.c_float * size)() for size in sizes] for _ in range(2)]
        self.log = []
        self.come = set()
        self._pushed = None  # in the iteration that has begun

    def parameters(self, i):
        return self._memory[0][i]

    def gradients(self, i):
        return self._memory[1][i]

    assigned = gradients

    def join(self):
        pass

    def require_open(self):
        pass

    @property
    def phase(self):
        if self._pushed is None:
            return _library.IDLE
        return _library.PUSHED if len(self._pushed) == len(self._memory[0]) else _library.PUSHING

    def begin(self, contributes, rates):
        self.come = set()
        self._pushed = set()

    def is_pushed(self, i):
        return i in self._pushed

    def push_several(self, numbers, contribution=_library.GRADIENT):
        self._pushed.update(numbers)
        self.log.append((_PUSHES[contribution], list(numbers)))

    def wait(self, i):
        self.log.append(("wait", i))
        self.come.add(i)

    def wait_all(self):
        self.log.append("wait_all")
        self._pushed = None

    def updates(self, i):
        return 1

    def all_absent(self, i):
        return i in self.absent_everywhere

    def received(self, i):
        end = i
        while end in self.come:
            end += 1
        return end - i


@unittest.skipIf(torch is None, "PyTorch is not installed: the exchange of a model")
class ModelExchangeTest(unittest.TestCase):
    def make(self, *layers):
        torch.manual_seed(1)
        self.model = nn.Sequential(*layers)
        self.tensors = _model.tensors_of(self.model)
        self.handle = _Handle(self.tensors)
        self.exchange = _model_exchange.ModelExchange(self.handle, self.tensors)
        self.exchange.join()

    def give(self, i, value=1.0):
        """A backward pass gives a gradient."""
        parameter = self.tensors[i].tensor
        parameter.grad = torch.full_like(parameter, value)
        if not self.exchange.is_begun:
            self.exchange.begin(True, None)
        self.exchange.gradient_is_there(i)

    def step(self):
        self.exchange.finish(True, None)

    def log(self):
        found, self.handle.log = self.handle.log, []
        return found

    def test_a_batch_that_is_given_up_counts_as_far_as_it_has_left(self):
        self.make(nn.Linear(3, _LARGE), nn.Linear(_LARGE, _LARGE))
        self.give(3)
        self.give(2)  # leaves, with the one before
        self.give(1)  # is kept until step()
        self.assertEqual(self.log(), [("push", [3, 2])])
        self.exchange.abandon()
        self.assertEqual(self.log(), [("nothing", [0, 1])])
        self.exchange.wait_for_all()
        self.model.zero_grad(set_to_none=True)
        self.give(3)
        self.step()
        self.exchange.wait_for_all()
        self.assertEqual(self.log(), ["wait_all", ("absent", [0, 1, 2]), ("push", [3]), "wait_all"])

    def test_what_a_worker_without_data_pushes(self):
        self.make(nn.Linear(3, 2), nn.BatchNorm1d(2))
        names = [item.name for item in self.tensors]
        self.tensors[0].tensor.grad = torch.ones(2, 3)  # of its last batch
        for absent in ({0, 1, 2, 3}, {0, 1, 3}):
            self.handle.absent_everywhere = absent
            self.exchange.begin(True, None)
            self.assertEqual(self.exchange.take_part(), len(absent) == 4)
            (zeros, nothing, waits) = self.log()
            self.assertEqual(zeros, ("absent", [0, 1, 2, 3, names.index("1.num_batches_tracked")]))
            self.assertEqual(nothing[0], "nothing")
            self.assertEqual(
                {names[i] for i in nothing[1]}, {"1.running_mean", "1.running_var"}
            )
            self.assertEqual(waits, "wait_all")

    def small(self):
        self.make(nn.Linear(3, 2), nn.Linear(2, 2))

    def test_small_gradients_are_pushed_together(self):
        self.small()
        for i in (3, 2, 1):
            self.give(i)
        self.assertEqual(self.log(), [])
        self.give(0, 5.0)
        self.step()
        self.assertEqual(self.log(), [("push", [3, 2, 1, 0])])
        self.assertEqual(list(self.handle.gradients(0)), [5.0] * 6)

    def test_a_large_gradient_is_pushed_at_once_with_those_that_have_gathered(self):
        self.make(nn.Linear(3, _LARGE), nn.Linear(_LARGE, _LARGE))
        self.give(3)
        self.assertEqual(self.log(), [])
        self.give(2)
        self.assertEqual(self.log(), [("push", [3, 2])])
        self.give(1)
        self.assertEqual(self.log(), [])
        self.step()
        self.assertEqual(self.log(), [("absent", [0]), ("push", [1])])

    def test_a_large_gradient_that_is_still_being_copied_is_pushed_with_the_next_one(self):
        self.make(nn.Linear(3, _LARGE), nn.Linear(_LARGE, _LARGE))
        placement = self.exchange._placement
        copied = placement.staged
        placement.staged = lambda wait: []
        self.give(2)
        self.assertEqual(self.log(), [])
        placement.staged = copied
        self.give(1)
        self.assertEqual(self.log(), [("push", [2, 1])])

    def test_many_small_gradients_do_not_gather_for_ever(self):
        self.make(*[nn.Linear(_LARGE // 2, _LARGE // 2) for _ in range(4)])
        for i in reversed(range(8)):
            self.give(i)
        self.assertEqual(self.log(), [("push", [7, 6, 5, 4, 3, 2, 1, 0])])

    def test_a_large_model_gathers_an_eighth_of_itself(self):
        self.make(*[nn.Linear(_LARGE, _LARGE, bias=False) for _ in range(40)])
        for i in reversed(range(40)):
            self.give(i)
        pushes = [("push", list(range(i, i - 5, -1))) for i in range(39, 0, -5)]
        self.assertEqual(self.log(), pushes)

    def test_no_model_gathers_more_than_1_mib(self):
        self.make(nn.Linear(2048, 2560, bias=False), nn.Linear(512, 512, bias=False))
        self.give(1)
        self.assertEqual(self.log(), [("push", [1])])

    def test_an_iteration_is_not_finished_before_step_although_everything_is_pushed(self):
        self.make(nn.Linear(_LARGE, _LARGE, bias=False))
        self.assertFalse(self.exchange.is_begun)
        self.give(0)
        self.assertEqual(self.handle.phase, _library.PUSHED)
        self.assertTrue(self.exchange.is_begun)
        self.assertEqual(self.exchange.iteration, 0)
        self.step()
        self.assertFalse(self.exchange.is_begun)
        self.assertEqual(self.exchange.iteration, 1)

    def test_each_iteration_gathers_anew(self):
        self.make(nn.BatchNorm1d(_LARGE * _LARGE // 2))
        for _ in range(3):
            self.give(1)
            self.assertNotIn(("push", [1]), self.log())
            self.give(0)
            self.assertEqual(self.log(), [("push", [1, 0])])
            self.step()
            # The number of batches has not changed.
            self.assertEqual(self.log(), [("absent", [4]), ("push", [2, 3])])

    def test_a_second_gradient_is_refused_while_the_first_one_gathers(self):
        self.small()
        self.give(1)
        with self.assertRaisesRegex(errors.FailedPrecondition, "0.bias: has a second gradient"):
            self.give(1)

    def test_a_gradient_that_changes_is_refused_while_it_gathers(self):
        def in_place(parameter):
            parameter.grad.mul_(2)

        def another(parameter):
            parameter.grad = parameter.grad.clone()

        def none(parameter):
            parameter.grad = None

        for change in (in_place, another, none):
            with self.subTest(change.__name__):
                self.small()
                self.give(1)
                change(self.tensors[1].tensor)
                with self.assertRaisesRegex(errors.FailedPrecondition, "0.bias: .* was changed"):
                    self.step()

    def test_contents_are_compared_in_the_first_iterations_and_at_intervals(self):
        self.small()
        found = []
        for iteration in range(70):
            self.give(1)
            self.tensors[1].tensor.grad.data.mul_(2)  # no version shows it
            try:
                self.step()
            except errors.FailedPrecondition:
                found.append(iteration)
                self.tensors[1].tensor.grad.data.div_(2)
                self.step()
            self.exchange.wait_for_all()
        self.assertEqual(found, [*range(10), 32, 64])

    def test_the_model_keeps_its_parameters_until_step(self):
        self.make(nn.Linear(_LARGE, _LARGE, bias=False))
        weight = self.model[0].weight
        before = weight.detach().clone()
        version = weight._version
        self.give(0)
        self.handle.parameters(0)[:] = [7.0] * weight.numel()  # the next ones have come
        self.exchange.wait_for_all()
        self.assertTrue(torch.equal(weight, before))
        self.assertEqual(weight._version, version)
        self.step()
        self.exchange.wait_for([0])
        self.assertTrue(torch.equal(weight, torch.full_like(weight, 7.0)))
        # Autograd says so if something still needs the old value.
        self.assertGreater(weight._version, version)

    def test_a_parameter_that_the_script_changes_is_refused(self):
        def in_place(parameter):
            parameter.detach().clamp_(-0.01, 0.01)

        def by_data(parameter):
            parameter.data.zero_()

        def other_data(parameter):
            parameter.data = torch.zeros_like(parameter)

        for change in in_place, by_data, other_data:
            with self.subTest(change.__name__):
                self.small()
                change(self.model[1].weight)
                self.tensors[0].tensor.grad = torch.ones(2, 3)
                with self.assertRaisesRegex(
                    errors.FailedPrecondition, "1.weight: was changed by the script before"
                ):
                    self.exchange.begin(True, None)
                self.assertEqual(self.log(), [])

    def test_a_parameter_that_changes_between_backward_and_step_is_refused(self):
        self.small()
        self.give(1)
        self.model[0].weight.detach().mul_(0.5)
        with self.assertRaisesRegex(errors.FailedPrecondition, "0.weight: was changed .* between"):
            self.step()

    def test_a_change_that_leaves_the_values_is_none(self):
        self.small()
        weight = self.model[0].weight
        weight.detach().clamp_(-100, 100)
        weight.data = weight.data.clone()
        self.give(0)
        self.step()

    def test_a_gradient_with_a_graph_of_its_own(self):
        self.small()
        parameter = self.tensors[1].tensor
        parameter.grad = parameter * 2
        self.exchange.begin(True, None)
        self.exchange.gradient_is_there(1)
        self.step()
        self.assertEqual(list(self.handle.gradients(1)), (2 * parameter).tolist())
        # Memory that took part in a graph would keep it, and those of all steps before.
        self.assertFalse(self.exchange._placement.gradient(1).requires_grad)

    def pushed(self, *layers):
        self.make(*layers)
        for i, item in enumerate(self.tensors):
            if item.is_parameter:
                self.give(i)
        self.step()
        self.log()

    def test_one_wait_takes_all_that_has_come(self):
        self.pushed(nn.Linear(3, 2), nn.BatchNorm1d(2), nn.Linear(2, 2))
        mean = [item.name for item in self.tensors].index("1.running_mean")
        self.handle.come = set(range(2, 6))
        self.handle.parameters(mean)[:] = [7.0, 8.0]
        self.exchange.wait_for([1])
        self.assertEqual(self.log(), [("wait", 1)])
        self.assertEqual(self.model[1].running_mean.tolist(), [7.0, 8.0])
        self.assertTrue(self.exchange._missing)
        # A forward pass changes it. It is not received again.
        self.model[1].running_mean.fill_(9)
        self.exchange.wait_for(range(1, 6))
        self.assertEqual(self.log(), [])
        self.exchange.wait_for([0])
        self.assertEqual(self.log(), [("wait", 0)])
        for i in (8, 7, 6):
            self.exchange.wait_for([i])
        self.assertEqual(self.log(), [("wait", 8), ("wait", 7), ("wait", 6)])
        self.assertFalse(self.exchange._missing)
        self.assertEqual(self.model[1].running_mean.tolist(), [9.0, 9.0])

    def test_where_copies_hold_computing_up_only_what_is_needed_is_taken(self):
        self.pushed(nn.BatchNorm1d(2), nn.BatchNorm1d(2))
        self.exchange._placement.takes_early = False
        self.handle.come = set(range(10))
        statistics = [i for i in range(10) if "running" in self.tensors[i].name]
        for i in statistics:
            self.handle.parameters(i)[:] = [5.0, 5.0]
        self.exchange.wait_for(range(5))
        self.assertEqual(self.model[0].running_var.tolist(), [5.0, 5.0])
        self.assertNotEqual(self.model[1].running_var.tolist(), [5.0, 5.0])
        self.exchange.wait_for(range(5, 10))
        self.assertEqual(self.model[1].running_var.tolist(), [5.0, 5.0])

    def test_nothing_has_come_but_what_was_waited_for(self):
        self.pushed(nn.Linear(3, 2), nn.Linear(2, 2))
        self.handle.come = {3}
        for i in range(4):
            self.exchange.wait_for([i])
        self.assertEqual(self.log(), [("wait", 0), ("wait", 1), ("wait", 2)])
        self.assertFalse(self.exchange._missing)

    def test_what_has_come_and_was_not_waited_for_is_given_to_the_model_all_the_same(self):
        self.pushed(nn.Linear(3, 2))
        self.handle.come = {0, 1}
        self.handle.parameters(0)[:] = [3.0] * 6
        self.handle.wait_all()  # the library knows that the iteration is over
        self.exchange.wait_for_all()
        self.assertEqual(self.model[0].weight.tolist(), [[3.0] * 3] * 2)

    def test_the_next_iteration_settles_the_last_one(self):
        self.pushed(nn.Linear(3, 2))
        self.handle.come = {1}
        self.exchange.wait_for([0])
        self.log()
        self.give(0)
        self.assertEqual(self.log(), ["wait_all"])

    def test_nothing_is_waited_for_within_an_iteration(self):
        self.small()
        self.give(3)
        self.exchange.wait_for_all()
        self.assertEqual(self.log(), [])
        self.step()
        self.assertEqual(self.log(), [("absent", [0, 1, 2]), ("push", [3])])


if __name__ == "__main__":
    unittest.main()
