"""The likeliest first mistakes, each of which gets a sentence; threads; and cells of notebooks."""

import _thread
import functools
import inspect
import itertools
import tempfile
import threading
import time
import unittest

from tests.python import fixture
from tests.python.script import Script, outcomes_of, reference_of

torch = fixture.torch
if torch is not None:
    import torch.nn.utils.parametrize
    import torch.nn.utils.prune
    from torch import nn

    import evenshard
    from evenshard import errors

_NO_SHARD = """
model { from_workers {} } partition { scheme: STRIPED } shard { address: "unix:/nowhere" }
workers: 1 update { policy: SYNC }
"""


def _model():
    torch.manual_seed(1)
    return nn.Sequential(nn.Linear(6, 130), nn.Tanh(), nn.Linear(130, 130), nn.Linear(130, 5))


def _loss(model, rank=0, step=0):
    inputs, targets = Script(rank, 4).batch(step)
    return nn.functional.mse_loss(model(inputs), targets)


def _sgd(model):
    return torch.optim.SGD(model.parameters(), lr=0.1)


def _calls(model):
    """Calls by name, and what each is answered with."""
    optimizer = evenshard.Optimizer
    return [
        (lambda: optimizer(), "model: is not given, allowed: evenshard.Optimizer(model,"),
        (lambda: optimizer(config=_NO_SHARD), "model: is not given"),
        (lambda: optimizer(nn.Linear), "model: is the class Linear, allowed: an object of it"),
        (lambda: optimizer(model.parameters()), "model: is a generator, allowed: a torch"),
        (lambda: optimizer(list(model.parameters()), lr=0.1), "model: is a list, allowed: a"),
        (lambda: optimizer(nn.DataParallel(model)), "model: is a DataParallel, which exchanges"),
        (lambda: optimizer(model, _sgd(model)), "config: is a SGD, allowed: the path or the text of"
         " a ClusterConfig; give the rule by its name: evenshard.Optimizer(model, optimizer="),
        (lambda: optimizer(model, torch.optim.SGD), "config: is the class torch.optim.sgd.SGD"),
        (lambda: optimizer(model, {"lr": 0.1}), "config: is a dict, allowed: the path or the text"),
        (lambda: optimizer(model, _NO_SHARD, _sgd(model)), "3 arguments without a name, allowed:"
         " model and config"),
        (lambda: optimizer(model, lr=0.1), "lr: is no argument of evenshard.Optimizer, allowed:"
         " model, config, optimizer, clip_grad_norm"),
        (lambda: optimizer(model, optimizer=torch.optim.SGD), "optimizer: is the class torch.optim."
         "sgd.SGD, allowed: an optimizer of torch.optim, optimizer=torch.optim.SGD(model."),
        (lambda: optimizer(model, optimizer="SGD"), "optimizer: is a str, allowed: an optimizer"),
        (lambda: optimizer(model, _NO_SHARD, optimizer=_sgd(_model()), rank=0),
         "optimizer: lacks 0.weight"),
        (lambda: optimizer(model, _NO_SHARD, optimizer=_sgd(model), rank="first"),
         "rank: is 'first', allowed: a number"),
        (lambda: evenshard.Worker({"w": [1.0]}, rank=0), "config: is a dict, allowed: the path"),
        (lambda: evenshard.Reader(["a"]), "config: is a list, allowed: the path or the text"),
    ]


def _texts():
    texts = []
    for call, _ in _calls(_model()):
        try:
            call()
        except errors.InvalidArgument as error:
            texts.append(str(error))
        else:
            texts.append("nothing")
    return texts


def _each_kind():
    """Functions of a model that make something that trains it."""
    return (
        lambda model: evenshard.Optimizer(model, optimizer=_sgd(model)),
        lambda model: evenshard.DistributedOptimizer(_sgd(model), model),
        lambda model: evenshard.LocalSteps(model, _sgd(model), steps=2),
    )


def _move(change, make):
    def train(script):
        model = _model()
        optimizer = make(model)
        change(model)
        _loss(model).backward()
        optimizer.step()
    return train


@unittest.skipIf(torch is None, "PyTorch is not installed: first mistakes")
class FirstMistakesTest(unittest.TestCase):
    def test_calls(self):
        for text, (_, expected) in zip(fixture.apart(_texts), _calls(None)):
            with self.subTest(expected):
                self.assertIn(expected, text)

    def test_the_signature_is_still_told(self):
        self.assertIn("coordinator", str(__import__("inspect").signature(evenshard.Optimizer)))

    def test_a_model_that_moves_after_the_optimizer_was_made(self):
        def double(model):
            model.double()
            model.forward = lambda x: nn.Sequential.forward(model, x.double()).float()
        for make in _each_kind():
            for end in outcomes_of(_move(double, make), "SEQUENTIAL", 1):
                self.assertRegex(
                    end.error or "", "0.weight: is torch.float64 on cpu now, and was torch.float32"
                    " on cpu when evenshard.(Optimizer|DistributedOptimizer|LocalSteps) was made"
                )

    def test_parameters_that_are_replaced_after_the_optimizer_was_made(self):
        def one(model):
            model[2].weight = nn.Parameter(model[2].weight.detach() + 1)

        def all_of_them(model):
            saved = {key: value.clone() for key, value in model.state_dict().items()}
            model.load_state_dict(saved, assign=True)

        changes = [(one, "2.weight"), (lambda model: nn.utils.weight_norm(model[2]), "2.weight")]
        if "assign" in inspect.signature(nn.Module.load_state_dict).parameters:
            changes.append((all_of_them, "0.weight|load_state_dict: "))
        for schedule, make in itertools.chain(
            itertools.product(["SEQUENTIAL"], _each_kind()),
            [("FULL", _each_kind()[0])],  # the others do not have it
        ):
            for change, name in changes:
                with self.subTest(f"{schedule}, {name}"):
                    for end in outcomes_of(_move(change, make), schedule, 1):
                        self.assertEqual(end.kind, "FailedPrecondition")
                        self.assertRegex(end.error, f"^({name}).*(was replaced|at the shards|take)")

    def test_a_parameter_beside_the_model_that_requires_a_gradient_later(self):
        def train(make, script):
            model, beside = _model(), nn.Parameter(torch.ones(3), requires_grad=False)
            given = torch.optim.SGD([*model.parameters(), beside], lr=0.1)
            optimizer = make(given, model)
            for step in range(3):
                beside.requires_grad_(step == 2)
                optimizer.zero_grad()
                (_loss(model, script.ranks[0], step) + beside.sum()).backward()
                optimizer.step()

        for make in (
            lambda given, model: evenshard.Optimizer(model, optimizer=given),
            lambda given, model: evenshard.DistributedOptimizer(given, model),
        ):
            ends = outcomes_of(functools.partial(train, make), "SEQUENTIAL", 2)
            self.assertIn("FailedPrecondition", [end.kind for end in ends])
            for end in ends:
                # Who still waits when the other notices it learns of that one's error.
                self.assertIn(end.kind, ("FailedPrecondition", "Aborted"), end.trace)
                self.assertIn('params"][6]: of shape (3,) is not a parameter of the model, and'
                              " requires a gradient now", end.error)

    def test_a_hook_that_takes_a_gradient_away(self):
        if not hasattr(nn.Parameter, "register_post_accumulate_grad_hook"):
            self.skipTest("this PyTorch has no such hooks")

        def train(script):
            model = _model()
            model[0].weight.register_post_accumulate_grad_hook(lambda p: setattr(p, "grad", None))
            script.optimizer(model)
            _loss(model).backward()

        for schedule in ("SEQUENTIAL", "BACKWARD"):
            for end in outcomes_of(train, schedule, 2):
                self.assertEqual(end.kind, "FailedPrecondition", end.trace)
                self.assertIn("0.weight: a hook of the script has taken its gradient", end.error)

    def test_the_optimizer_that_was_handed_over_has_no_old_state(self):
        def train(rule, script):
            model = _model()
            given = rule(model.parameters())
            optimizer = evenshard.Optimizer(model, optimizer=given)
            texts = []

            def refused(call):
                try:
                    call()
                    texts.append("")
                except errors.FailedPrecondition as error:
                    texts.append(str(error))

            for step in range(2):
                optimizer.zero_grad()
                _loss(model, 0, step).backward()
                optimizer.step()
            saved = optimizer.state_dict()
            optimizer.close()
            schedule = torch.optim.lr_scheduler.StepLR(given, 1)
            for call in (given.step, given.state_dict, lambda: list(given.state),
                         lambda: given.load_state_dict({"state": {}, "param_groups": []})):
                try:
                    refused(call)
                except ValueError:
                    texts.append("a ValueError")
            refused(given.step)
            given.load_state_dict(saved)
            given.step()
            schedule.step()
            return texts, [float(each["step"]) for each in given.state_dict()["state"].values()]

        adam = functools.partial(torch.optim.Adam, lr=0.1)
        for texts, steps in (end.value for end in outcomes_of(
                functools.partial(train, adam), "SEQUENTIAL", 1)):
            self.assertEqual(texts.pop(3), "a ValueError")
            for text in texts:
                self.assertIn("has trained in this optimizer's place", text)
            self.assertEqual(steps, [3.0] * 6)
        sgd = functools.partial(torch.optim.SGD, lr=0.1)  # has none
        for end in outcomes_of(functools.partial(_steps_after_close, sgd), "SEQUENTIAL", 1):
            self.assertIsNone(end.error, end.trace)

    def test_parameters_that_only_move_are_trained(self):
        def train(change, script):
            model = _model()
            optimizer = script.optimizer(model)
            for step in range(4):
                if step == 2:
                    change(model)
                optimizer.zero_grad()
                _loss(model, 0, step).backward()
                optimizer.step()
            return [parameter.detach() for parameter in model.parameters()]

        def not_used(model):
            model[2] = nn.Identity()

        for schedule, change in itertools.product(("SEQUENTIAL", "FULL"), (
            lambda model: nn.utils.prune.l1_unstructured(model[2], "weight", 0.5),
            lambda model: nn.utils.parametrize.register_parametrization(model[2], "weight",
                                                                        nn.Tanh()),
            not_used,
        )):
            habit = functools.partial(train, change)
            expected = reference_of(habit, 1)
            for end in outcomes_of(habit, schedule, 1):
                self.assertIsNone(end.error, end.trace)
                for found, value in zip(end.value, expected):
                    torch.testing.assert_close(found, value)


def _steps_after_close(rule, script):
    model = _model()
    given = rule(model.parameters())
    optimizer = evenshard.Optimizer(model, optimizer=given)
    _loss(model, script.ranks[0]).backward()
    optimizer.step()
    optimizer.close()
    given.step()
    return given.state_dict()


def _a_backward_pass_in_assign(script):
    """In one of autograd's threads, as of a model on a GPU, for which the script waits."""
    model = _model()
    optimizer = script.optimizer(model)
    texts, over = [], threading.Event()

    def compute():
        try:
            with torch.enable_grad(), optimizer.no_sync():
                _loss(model).backward()
        except errors.FailedPrecondition as error:
            texts.append(str(error))
        over.set()

    with optimizer.assign():
        _thread.start_new_thread(compute, ())
        over.wait()
    optimizer.zero_grad()
    _loss(model, script.ranks[0]).backward()
    optimizer.step()
    return texts


def _two_threads(act):
    """`act(model, optimizer)` in a second thread, after a backward pass in the first one. Returns
    what that ends with."""
    def train(script):
        model = _model()
        optimizer = script.optimizer(model)
        found = []

        def second():
            try:
                found.append(act(model, optimizer))
            except Exception as error:
                found.append(str(error))

        for step in range(3):
            optimizer.zero_grad()
            _loss(model, script.ranks[0], step).backward()
            if step == 1:
                thread = threading.Thread(target=second, name="second")
                thread.start()
                thread.join()
            optimizer.step()
        return found, model.state_dict()
    return train


def _backward(model, _):
    try:
        _loss(model).backward()
    except errors.FailedPrecondition as error:
        assert "the thread second uses an iteration" in str(error), error
        return
    raise AssertionError("not refused")


def _a_training_in_a_thread(script):
    """It begins in the main thread, and goes on in others, one after another."""
    model = _model()
    optimizer = script.optimizer(model)

    def train(step):
        optimizer.zero_grad()
        _loss(model, script.ranks[0], step).backward()
        optimizer.step()

    for step in range(4):
        thread = threading.Thread(target=train, args=[step])
        thread.start()
        thread.join()
    return optimizer.iteration


def _readers_beside_the_training(script):
    """Threads that read parameters and wait for all, while the main thread trains."""
    model = _model()
    optimizer = script.optimizer(model)
    over = threading.Event()
    found = []

    def read():
        try:
            while not over.is_set():
                optimizer.synchronize()
                with torch.no_grad():
                    found.append(float(model(torch.ones(1, 6)).sum()))
        except Exception as error:
            found.append(error)

    threads = [threading.Thread(target=read) for _ in range(3)]
    for thread in threads:
        thread.start()
    for step in range(30):
        optimizer.zero_grad()
        _loss(model, script.ranks[0], step).backward()
        optimizer.step()
    over.set()
    for thread in threads:
        thread.join()
    return [each for each in found if not isinstance(each, float)], optimizer.iteration


def _a_close_while_a_thread_waits(is_closed):
    """In worker 0. Until it has set the event, worker 1 begins no fourth iteration."""
    def train(script):
        model = _model()
        optimizer = script.optimizer(model)
        found = []

        def steps():
            try:
                while True:
                    if script.ranks == [1] and optimizer.iteration == 3:
                        is_closed.wait(fixture.PATIENCE_SECONDS)
                    optimizer.zero_grad()
                    _loss(model, script.ranks[0]).backward()
                    optimizer.step()
            except errors.Error as error:
                found.append((type(error).__name__, str(error)))

        if script.ranks == [1]:
            steps()
            return found
        thread = threading.Thread(target=steps)
        thread.start()
        while optimizer.iteration < 4 or not optimizer._handle._calls.is_going_on:
            time.sleep(0.001)
        optimizer.close("given up")
        is_closed.set()
        thread.join()
        return found

    return train


@unittest.skipIf(torch is None, "PyTorch is not installed: threads")
class ThreadsTest(unittest.TestCase):
    def test_an_iteration_of_two_threads_is_refused(self):
        refused = ("the thread second uses an iteration that backward() has begun in the thread"
                   " MainThread")
        for schedule in ("BACKWARD", "FULL"):
            for act in (lambda _, optimizer: optimizer.step(),
                        lambda _, optimizer: optimizer.abandon()):
                for end in outcomes_of(_two_threads(act), schedule, 2):
                    self.assertIsNone(end.error, end.trace)
                    self.assertIn(refused, end.value[0][0])
            # A second backward pass is refused there, and has changed the gradient.
            for end in outcomes_of(_two_threads(_backward), schedule, 2):
                self.assertIn("its gradient was changed", end.error)

    def test_threads_one_after_another(self):
        for schedule in ("BACKWARD", "FULL", "SEQUENTIAL"):
            for end in outcomes_of(_a_training_in_a_thread, schedule, 2):
                self.assertIsNone(end.error, end.trace)
                self.assertEqual(end.value, 4)

    def test_a_close_while_a_thread_waits(self):
        for schedule in ("BACKWARD", "FULL", "SEQUENTIAL"):
            is_closed = fixture.multiprocessing.get_context("fork").Event()
            first, second = outcomes_of(_a_close_while_a_thread_waits(is_closed), schedule, 2)
            self.assertEqual([kind for kind, _ in first.value], ["Interrupted"], first.value)
            self.assertIn("given up", second.value[0][1])

    def test_a_backward_pass_in_assign(self):
        for end in outcomes_of(_a_backward_pass_in_assign, "BACKWARD", 2):
            self.assertIsNone(end.error, end.trace)
            self.assertEqual(len(end.value), 1)
            self.assertIn("backward(): in `with optimizer.assign():`", end.value[0])

    def test_a_thread_that_fails(self):
        text = _TRAIN + """
import threading
def fail():
    train()
    if FAILS: 1 / 0
for thread in (threading.Thread(target=fail), threading.Thread(target=lambda: [][0])):
    thread.start()
    thread.join()
"""
        for fails, leave, code in (
            (True, "", 1), (True, "import sys; sys.exit()", 1),
            (True, "import sys; sys.exit(3)", 3), (True, "train()", 0), (False, "", 0),
        ):
            with fixture.Cluster(1, workers=1, rule="", schedule="BACKWARD") as cluster:
                end = fixture.run_workers(
                    self, cluster,
                    lambda _: fixture.run_script(text.replace("FAILS", repr(fails)) + leave),
                    workers=1,
                )[0]
            self.assertIn("IndexError", end[2])  # of a thread that trains nothing
            self.assertEqual(end[0], code, end)

    def test_threads_that_read(self):
        for schedule in ("BACKWARD", "FULL"):
            for end in outcomes_of(_readers_beside_the_training, schedule, 2):
                self.assertIsNone(end.error, end.trace)
                self.assertEqual(end.value, [[], 30])


_NOTEBOOK = """
from IPython.core.interactiveshell import InteractiveShell
shell = InteractiveShell.instance(colors="NoColor")
for cell in CELLS:
    shell.run_cell(cell)
"""
_TRAIN = """
import torch, evenshard
model = torch.nn.Linear(3, 2)
optimizer = evenshard.Optimizer(model, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))
def train():
    model(torch.ones(2, 3)).sum().backward()
    optimizer.step()
train()
"""


@unittest.skipIf(torch is None, "PyTorch is not installed: cells of notebooks")
class NotebookTest(unittest.TestCase):
    def run_cells(self, *cells):
        """The outcomes of two workers, of which rank 1 trains on."""
        def work(rank):
            place = {"IPYTHONDIR": tempfile.mkdtemp()}
            if rank == 1:
                text = _TRAIN + "for _ in range(2): train()\n"
                return fixture.run_script(text, environment=place)
            text = _NOTEBOOK.replace("CELLS", repr([_TRAIN, *cells]))
            return fixture.run_script(text, environment=place)

        with fixture.Cluster(1, workers=2, rule="", schedule="BACKWARD") as cluster:
            ends = fixture.run_workers(self, cluster, work, workers=2)
        if "No module named 'IPython'" in ends[0][2]:
            self.skipTest("IPython is not installed")
        return ends

    def test_a_cell_that_fails_leaves_the_run(self):
        first, second = self.run_cells("1 / 0", "train()")
        self.assertEqual(second[0], 75, second)
        self.assertIn("worker 0 gave up: ZeroDivisionError: division by zero", second[2])
        self.assertIn("has left the run: ZeroDivisionError: division by zero", first[1])

    def test_cells_that_do_not(self):
        for end in self.run_cells("import sys; sys.exit()", "train()", "train()"):
            self.assertEqual(end[0], 0, end)


if __name__ == "__main__":
    unittest.main()
