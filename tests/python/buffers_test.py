"""What is not trained, frozen parameters and buffers, has rank 0's values on all workers."""

import itertools
import unittest

from tests.python import fixture

torch = fixture.torch
if torch is not None:
    import evenshard
    from torch import nn

_STEPS = 5


def _numbers(seed, *shape):
    return torch.randn(*shape, generator=fixture.generator(seed))


if torch is not None:

    class _Model(nn.Module):
        """Everything that a model may have besides trained parameters, different on each rank."""

        def __init__(self, rank):
            super().__init__()
            self.frozen = nn.Linear(6, 130)
            self.frozen.requires_grad_(False)
            self.norm = nn.BatchNorm1d(130)
            self.last = nn.Linear(130, 5)
            self.register_buffer("scale", _numbers(rank, 130))
            self.register_buffer("table", _numbers(40 + rank, 9).double())
            mask = torch.where(_numbers(10 + rank, 5) > 0, 0.0, -float("inf"))
            self.register_buffer("mask", mask)
            self.register_buffer("flags", _numbers(20 + rank, 7) > 0)
            self.register_buffer("steps", torch.tensor(rank))
            self.register_buffer("short", _numbers(30 + rank, 3).to(torch.bfloat16))
            self.register_buffer("own", torch.tensor(rank), persistent=False)

        def forward(self, x):
            if self.training:
                self.steps += 1
            x = self.norm(torch.tanh(self.frozen(x))) * self.scale
            return self.last(x)


def _train(rank, change=None):
    torch.manual_seed(100 + rank)
    model = _Model(rank)
    first = {key: value.clone() for key, value in model.state_dict().items()}
    seen = []
    rule = torch.optim.Adam(model.parameters(), lr=0.01)
    with evenshard.Optimizer(model, optimizer=rule) as optimizer:
        for step in range(_STEPS):
            optimizer.zero_grad()
            model(_numbers(1000 * step + rank, 4, 6)).square().sum().backward()
            if change:
                change(rank, step, model)
            optimizer.step()
            optimizer.synchronize()
            seen.append({key: value.clone() for key, value in model.state_dict().items()})
        return first, seen, int(model.own)


def _in_place(rank, step, model):
    """As a moving average does: `scale` with, and `mask` without a version that shows it."""
    model.scale.mul_(1 + rank + step)
    model.mask.data.sub_(1 + rank + step)


def _hidden_by_rank_1(rank, step, model):
    """What nothing but a comparison of contents shows."""
    if rank == 1:
        for tensor in (model.scale, model.mask, model.frozen.weight):
            tensor.data.add_(1)


def _replaced(rank, step, model):
    model.flags = torch.full((7,), (rank + step) % 2 == 0)


def _other_statistics(rank, step, model):
    """Puts other tensors in their place, the same in all workers."""
    if step == 1:
        torch.optim.swa_utils.update_bn([_numbers(step, 4, 130)], model.norm)
    if step == 2:
        model.norm.running_mean = torch.ones(130)
    if step == 3:
        model.norm.running_var = model.norm.running_var.clone()


@unittest.skipIf(torch is None, "PyTorch is not installed: what is not trained")
class BuffersTest(unittest.TestCase):
    def run_workers(self, *arguments, **settings):
        with fixture.Cluster(2, rule="", workers=2, **settings) as cluster:
            return fixture.run_workers(self, cluster, _train, *arguments, workers=2)

    def test_all_workers_have_rank_0s_values(self):
        changes = (None, _in_place, _hidden_by_rank_1, _replaced, _other_statistics)
        schedules = ("BACKWARD", "FULL", "SEQUENTIAL")
        memory = itertools.cycle((True, False, False))
        for schedule, change in itertools.product(schedules, changes):
            shared = next(memory)
            with self.subTest(schedule, shared=shared, change=change):
                found = self.run_workers(change, schedule=schedule, shared_memory=shared)
                (first, seen, _), (_, others, own) = found
                self.assertEqual(own, 1)
                for step in range(_STEPS):
                    for key, value in seen[step].items():
                        self.assertTrue(torch.equal(value, others[step][key]), (step, key))
                for key in ("frozen.weight", "frozen.bias", "short"):
                    self.assertTrue(torch.equal(seen[-1][key], first[key]), key)
                self.assertEqual([int(state["steps"]) for state in seen], [1, 2, 3, 4, 5])
                batches = _STEPS - (change is _other_statistics)  # update_bn starts again
                self.assertEqual(int(seen[-1]["norm.num_batches_tracked"]), batches)
                if change is None:
                    self.assertTrue(torch.equal(seen[-1]["mask"], first["mask"]))
                if change is _in_place:
                    expected = first["scale"]
                    for step in range(_STEPS):
                        expected = expected * (1 + step)
                    torch.testing.assert_close(seen[-1]["scale"], expected)
                    self.assertTrue(torch.equal(seen[-1]["mask"], first["mask"] - 15))

    def test_they_are_in_what_is_saved_and_read(self):
        def work(rank, config):
            model = _Model(rank)
            rule = torch.optim.SGD(model.parameters(), lr=0.01)
            with evenshard.Optimizer(model, optimizer=rule) as optimizer:
                model(_numbers(rank, 4, 6)).sum().backward()
                optimizer.step()
                if rank == 0:
                    with evenshard.Reader(config) as reader:
                        other = _Model(5)
                        reader.pull().load_into(other)
                        for key, value in model.state_dict().items():
                            assert torch.equal(value, other.state_dict()[key]), key
                optimizer.zero_grad()
                model(_numbers(rank, 4, 6)).sum().backward()
                optimizer.step()

        with fixture.Cluster(2, rule="", workers=2, schedule="BACKWARD") as cluster:
            fixture.run_workers(self, cluster, work, cluster.path, workers=2)

    def test_what_float32_cannot_hold_is_refused(self):
        model = nn.Linear(2, 2)
        model.register_buffer("counts", torch.tensor([2**24 + 1]))
        model.register_buffer("table", torch.tensor([0.1], dtype=torch.float64))
        model.register_buffer("own", torch.tensor([2**24 + 1]), persistent=False)
        with self.assertRaises(evenshard.TensorError) as raised:
            evenshard.Optimizer(model, "model { from_workers {} }", rank=0)
        self.assertRegex(str(raised.exception), r"counts: is not trained, of torch.int64, and has")
        self.assertRegex(str(raised.exception), r"table: is not trained, of torch.float64, and has")
        self.assertNotIn("own", str(raised.exception).replace("worker's own", ""))

    def test_parameters_that_share_memory_and_are_no_one_parameter(self):
        model = nn.Sequential(nn.Linear(3, 3), nn.Linear(3, 3))
        model[1].weight.data = model[0].weight.data
        with self.assertRaises(evenshard.TensorError) as raised:
            evenshard.Optimizer(model, "model { from_workers {} }", rank=0)
        self.assertIn(
            "1.weight: is on the memory of 0.weight and is another tensor", str(raised.exception)
        )


if __name__ == "__main__":
    unittest.main()
