"""What only a model on a GPU does: mixed precision, streams of its own, and copies that take a
while. Everything else is tried there by the other tests: EVENSHARD_TEST_DEVICE=cuda."""

import unittest
import warnings
from unittest import mock

from tests.python import fixture
from tests.python.script import SCHEDULES, loss_of, mlp, outcomes_of, reference_of

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard

_STEPS = 8
# Copies of tensors of this width outlast the calls that begin them.
_BROAD = 2048


def _momentum(parameters):
    return torch.optim.SGD(parameters, lr=0.01, momentum=0.9)


def _train(script, forward, optimizer, steps=range(_STEPS)):
    for step in steps:
        optimizer.zero_grad()
        loss_of(script, forward, step).backward()
        optimizer.step()


def autocast(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.bfloat16):
            loss = loss_of(script, model, step)
        loss.backward()
        optimizer.step()
    return model.state_dict()


def gradient_scaler(script):
    model = mlp()
    optimizer = script.optimizer(model)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    for step in range(_STEPS):
        optimizer.zero_grad()
        with torch.autocast("cuda", torch.float16):
            loss = loss_of(script, model, step)
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
    return model.state_dict(), scaler.get_scale()


def gradient_scaler_with_an_infinity(script):
    """One worker's or the whole batch is given up: all of them here."""
    model = mlp()
    optimizer = script.optimizer(model)
    scaler = torch.amp.GradScaler("cuda", init_scale=2.0**10)
    for step in range(_STEPS):
        optimizer.zero_grad()
        scaler.scale(loss_of(script, model, step) * (float("inf") if step == 2 else 1)).backward()
        scaler.step(optimizer)
        scaler.update()
    return model.state_dict(), scaler.get_scale()


def broad_layers(script):
    torch.manual_seed(1)
    model = nn.Sequential(
        nn.Linear(6, _BROAD), nn.Tanh(), nn.Linear(_BROAD, _BROAD), nn.Tanh(),
        nn.Linear(_BROAD, _BROAD), nn.Tanh(), nn.Linear(_BROAD, 5),
    )
    optimizer = script.optimizer(model, _momentum)
    _train(script, model, optimizer)
    return [value.detach().flatten()[:_BROAD] for value in model.parameters()]


def stream_of_its_own(script):
    """Forward and backward pass are on a stream that the script has made, and wait for work that is
    there already."""
    model = mlp()
    optimizer = script.optimizer(model)
    stream = torch.cuda.Stream()
    delay = torch.ones(_BROAD, _BROAD)
    for step in range(_STEPS):
        optimizer.zero_grad()
        stream.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(stream):
            for _ in range(20):
                delay = (delay @ delay).clamp(0, 1)
            (loss_of(script, model, step) * delay.mean()).backward()
        torch.cuda.current_stream().wait_stream(stream)
        optimizer.step()
    return model.state_dict()


def statistics_and_frozen_layers(script):
    torch.manual_seed(1)
    model = nn.Sequential(nn.Linear(6, 16), nn.BatchNorm1d(16), nn.Tanh(), nn.Linear(16, 5))
    model[0].requires_grad_(False)
    optimizer = script.optimizer(model)
    # Each worker's batch sees the statistics of its own: those of one worker are compared.
    _train(script, model, optimizer)
    return model.state_dict()


def compiled(script):
    model = mlp()
    forward = torch.compile(model)
    optimizer = script.optimizer(model)
    _train(script, forward, optimizer)
    return model.state_dict()


def script_with_its_own_rule(script):
    model = mlp()
    optimizer = torch.optim.RMSprop(model.parameters(), lr=1e-3, eps=1e-2, momentum=0.5)
    if script.is_worker:
        optimizer = evenshard.DistributedOptimizer(optimizer, model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        loss_of(script, model, step).backward()
        if script.is_worker:
            optimizer.synchronize()
        nn.utils.clip_grad_norm_(model.parameters(), 0.05)
        optimizer.step()
    return model.state_dict()


def rounds_of_one_step(script):
    """Local steps by SGD, of which each round has one, are data-parallel SGD."""
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    if script.is_worker:
        optimizer = evenshard.LocalSteps(
            model, optimizer, steps=1, outer_learning_rate=1, outer_momentum=0
        )
    _train(script, model, optimizer)
    return model.state_dict()


def sixteen_bits(script):
    """Within what bfloat16 has."""
    model = mlp().to(torch.bfloat16)
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        inputs, targets = script.batch(step)
        scores = model(inputs.to(torch.bfloat16)).float()
        nn.functional.mse_loss(scores, targets).backward()
        optimizer.step()
    return {name: value.float() for name, value in model.state_dict().items()}


def state_that_comes_back(script):
    """Adam's moments, from the shards to the device and back."""
    model = mlp()
    optimizer = script.optimizer(model, lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3))
    _train(script, model, optimizer, range(4))
    optimizer.load_state_dict(optimizer.state_dict())
    _train(script, model, optimizer, range(4, _STEPS))
    state = optimizer.state_dict()["state"]
    return model.state_dict(), [state[i]["exp_avg"] for i in sorted(state)]


def state_of_sixteen_bits(script):
    """What is assigned is float32, and needs more memory than the gradients."""
    torch.manual_seed(1)
    layers = [nn.Linear(6, _BROAD), *(nn.Linear(_BROAD, _BROAD) for _ in range(3))]
    model = nn.Sequential(*layers, nn.Linear(_BROAD, 5)).to(torch.bfloat16)
    optimizer = script.optimizer(model, lambda p: torch.optim.Adam(p, lr=1e-3, eps=1e-3))
    for step in range(4):
        optimizer.zero_grad()
        inputs, targets = script.batch(step)
        nn.functional.mse_loss(model(inputs.to(torch.bfloat16)).float(), targets).backward()
        optimizer.step()
    optimizer.load_state_dict(optimizer.state_dict())
    return [value.detach().float().flatten()[:_BROAD] for value in model.parameters()]


def memory_that_is_locked_already(script):
    """CUDA refuses to lock it again, and training goes on without an error of that."""
    cudart = torch.cuda.cudart()

    class LockedBefore:
        cudaHostUnregister = cudart.cudaHostUnregister

        @staticmethod
        def cudaHostRegister(*arguments):
            cudart.cudaHostRegister(*arguments)
            return cudart.cudaHostRegister(*arguments)

    with mock.patch("torch.cuda.cudart", LockedBefore), warnings.catch_warnings():
        warnings.filterwarnings("ignore", "cudaHostRegister")
        return broad_layers(script)


def model_on_two_devices(script):
    script.optimizer(nn.Sequential(nn.Linear(6, 5, device="cpu"), nn.Linear(5, 5)))


@unittest.skipIf(torch is None or fixture.DEVICE == "cpu", "no EVENSHARD_TEST_DEVICE: a GPU")
class DeviceTest(unittest.TestCase):
    def check(self, habit, schedules=SCHEDULES, workers=2, rtol=1e-4, atol=1e-6):
        expected = reference_of(habit, workers)
        for schedule in schedules:
            with self.subTest(schedule=schedule):
                for end in outcomes_of(habit, schedule, workers):
                    self.assertIsNone(end.error, end.trace)
                    torch.testing.assert_close(end.value, expected, rtol=rtol, atol=atol)

    def test_memory_is_page_locked(self):
        def habit(script):
            with warnings.catch_warnings():
                warnings.filterwarnings("error", "cudaHostRegister")
                return autocast(script)

        for end in outcomes_of(habit, "BACKWARD", 2):
            self.assertIsNone(end.error, end.trace)

    def test_autocast(self):
        self.check(autocast, rtol=2e-2, atol=2e-2)

    def test_gradient_scaler(self):
        self.check(gradient_scaler, ("SEQUENTIAL",), rtol=2e-2, atol=2e-2)

    def test_gradient_scaler_with_an_infinity(self):
        self.check(gradient_scaler_with_an_infinity, ("SEQUENTIAL",))

    def test_broad_layers(self):
        self.check(broad_layers, rtol=1e-3, atol=1e-4)

    def test_stream_of_its_own(self):
        self.check(stream_of_its_own)

    def test_statistics_and_frozen_layers(self):
        self.check(statistics_and_frozen_layers, workers=1)

    def test_compiled(self):
        self.check(compiled, ("BACKWARD",))

    def test_script_with_its_own_rule(self):
        self.check(script_with_its_own_rule, ("BACKWARD",))

    def test_rounds_of_one_step(self):
        self.check(rounds_of_one_step, ("BACKWARD",))

    def test_sixteen_bits(self):
        self.check(sixteen_bits, ("BACKWARD", "FULL"), rtol=2e-2, atol=2e-2)

    def test_state_that_comes_back(self):
        self.check(state_that_comes_back, ("BACKWARD", "FULL"))

    def test_state_of_sixteen_bits(self):
        self.check(state_of_sixteen_bits, ("BACKWARD",), rtol=2e-2, atol=2e-2)

    def test_memory_that_is_locked_already(self):
        self.check(memory_that_is_locked_already, ("BACKWARD",), rtol=1e-3, atol=1e-4)

    def test_model_on_two_devices(self):
        for end in outcomes_of(model_on_two_devices, "BACKWARD", 1):
            self.assertEqual(end.kind, "InvalidArgument", end.trace)
            self.assertRegex(end.error, "device")


if __name__ == "__main__":
    unittest.main()
