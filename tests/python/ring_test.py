"""Workers in a ring, without shards, against one process that has all batches."""

import os
import re
import signal
import subprocess
import sys
import tempfile
import time
import unittest

from tests.python import fixture
from tests.python.script import SCHEDULES, Script, loss_of, mlp, outcomes_of, reference_of

torch = fixture.torch
if torch is not None:
    from torch import nn

    import evenshard

_STEPS = 5


def _step(script, model, optimizer, step):
    optimizer.zero_grad()
    loss_of(script, model, step).backward()
    optimizer.step()


def _with_rule(rule):
    """Groups with rates of their own, and a scheduler."""
    def train(script):
        model = mlp()
        parameters = list(model.parameters())
        groups = [{"params": parameters[:2], "lr": 0.01}, {"params": parameters[2:]}]
        optimizer = script.optimizer(model, lambda _: rule(groups))
        scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2, gamma=0.5)
        for step in range(_STEPS):
            _step(script, model, optimizer, step)
            scheduler.step()
        if script.is_worker:
            optimizer.synchronize()
        return model.state_dict()
    return train


def _rules():
    return {
        "SGD": lambda p: torch.optim.SGD(p, lr=0.05, momentum=0.9, weight_decay=0.01),
        "AdamW": lambda p: torch.optim.AdamW(p, lr=1e-3, eps=1e-3),
        "RMSprop": lambda p: torch.optim.RMSprop(p, lr=1e-3, eps=1e-2),
    }


def _sometimes_unused(script):
    """The rule leaves a parameter alone that no batch of the step has used."""
    torch.manual_seed(2)
    model = nn.ModuleDict({"body": nn.Linear(6, 5), "extra": nn.Linear(5, 5)})
    optimizer = script.optimizer(model, lambda p: torch.optim.SGD(p, lr=0.1, momentum=0.9))
    for step in range(_STEPS):
        optimizer.zero_grad(set_to_none=True)
        for rank in script.ranks:
            inputs, targets = Script(rank, 4).batch(step)
            result = model["body"](inputs)
            if rank == 0 and step in (1, 3):
                result = model["extra"](result)
            (nn.functional.mse_loss(result, targets) / len(script.ranks)).backward()
        optimizer.step()
    return model.state_dict()


def _used_in_another_order(script):
    """Gradients come in another order than the buckets have them."""
    torch.manual_seed(2)
    model = nn.ModuleDict({name: nn.Linear(6, 6) for name in "dacb"})
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        optimizer.zero_grad()
        inputs, _ = script.batch(step)
        for name in "abcd":
            inputs = torch.tanh(model[name](inputs))
        inputs.square().mean().backward()
        optimizer.step()
    return model.state_dict()


def _assigning(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        _step(script, model, optimizer, step)
        with script.assign(optimizer):
            for parameter in model.parameters():
                parameter.clamp_(-0.05, 0.05)
    return model.state_dict()


def _with_buffers(script):
    """What is frozen is large, and comes once."""
    torch.manual_seed(5 + script.ranks[0])
    model = nn.Sequential(
        nn.Linear(6, 4000), nn.Linear(4000, 8), nn.BatchNorm1d(8), nn.Linear(8, 5)
    )
    for parameter in model[0].parameters():
        parameter.requires_grad_(False)
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        _step(script, model, optimizer, step)
    optimizer.synchronize()
    return model.state_dict(), optimizer.statistics().bytes_out


def _asking_for_means(script):
    model = mlp()
    optimizer = script.optimizer(model)
    means = []
    for step in range(3):
        _step(script, model, optimizer, step)
        means.append(optimizer.mean(float(script.ranks[0] + step)))
        optimizer.barrier()
    return means


def _local_steps(script):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    optimizer = evenshard.LocalSteps(
        model, optimizer, steps=2, outer_learning_rate=1.0, outer_momentum=0)
    for step in range(4):
        _step(script, model, optimizer, step)
    return model.state_dict()


# What ends the run, with what the others say.


def _another_number_of_steps(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(2 + script.ranks[0]):
        _step(script, model, optimizer, step)
    optimizer.close()


def _another_model_at_one_rank(script):
    script.optimizer(nn.Linear(6, 5 + script.ranks[0]))


def _a_mean_at_one_rank(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(3):
        _step(script, model, optimizer, step)
        if script.ranks == [0]:
            optimizer.mean(1.0)


def _means_at_other_places(script):
    optimizer = script.optimizer(mlp())
    if script.ranks == [0]:
        optimizer.mean(1.0)
    else:
        optimizer.barrier()


def _another_rate_at_one_rank(script):
    model = mlp()
    optimizer = script.optimizer(model)
    optimizer.param_groups[0]["lr"] = 0.5 if script.ranks == [1] else 0.1
    _step(script, model, optimizer, 0)


def _assigning_at_one_rank(script):
    model = mlp()
    optimizer = script.optimizer(model)
    if script.ranks == [0]:
        with optimizer.assign():
            model[0].bias.zero_()
    _step(script, model, optimizer, 0)


def _not_finite(script):
    model = mlp()
    optimizer = script.optimizer(model)
    optimizer.zero_grad()
    (loss_of(script, model, 0) * (float("inf") if script.ranks == [1] else 1)).backward()
    optimizer.step()


_ENDS = [
    (_another_number_of_steps, r"worker 0 .* has finished after 2 iterations, and worker 1"),
    (_another_model_at_one_rank, r"brings something else than worker"),
    (_a_mean_at_one_rank, r"worker 0 is in a mean\(\) or barrier\(\), and worker 1 has begun"),
    (_means_at_other_places, r"asks for a mean of no value at .*, and worker 0 asks for a mean of"),
    (_another_rate_at_one_rank, r"the learning rate 0\.5"),
    (_assigning_at_one_rank, r"assigns values"),
    (_not_finite, r"worker 1 pushed a gradient that is not finite"),
]

# What a ring does not have.


def _registering(script):
    optimizer = script.optimizer(mlp())
    optimizer.register_state("scheduler", torch.optim.lr_scheduler.StepLR(optimizer, 2))


def _asking_for_the_state(script):
    script.optimizer(mlp()).state_dict()


def _bringing_a_state(script):
    model = mlp()
    given = torch.optim.Adam(model.parameters())
    loss_of(script, model, 0).backward()
    given.step()
    evenshard.Optimizer(model, optimizer=given)


def _clipping(script):
    script.optimizer(mlp(), clip_grad_norm=1.0)


def _of_16_bits(script):
    script.optimizer(mlp().to(torch.bfloat16))


def _with_shards(script):
    model = mlp()
    evenshard.Optimizer(model, topology="parameter_server",
                        optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


_REFUSED = [
    (_registering, {}, r"register_state: no worker goes on in place of another in a ring"),
    (_asking_for_the_state, {}, r"state_dict\(\): in a ring each worker has a part"),
    (_bringing_a_state, {}, r"which has stepped before: in a ring each worker has a part"),
    (_clipping, {}, r"clip_global_norm: is 1 with topology RING"),
    (_of_16_bits, {}, r"0\.weight, which is BFLOAT16 with topology RING.*allowed: FLOAT32"),
    (_with_shards, {}, r"topology: is 'parameter_server', and the run has RING"),
    (_asking_for_means, {"update": "policy: ASYNC"}, r"update\.policy: is ASYNC with topology R"),
]


def _gradients_on_one_tensor(script):
    """Also in iterations that compare no contents."""
    model = mlp()
    optimizer = script.optimizer(model)
    sizes = [p.numel() for p in model.parameters()]
    for step in range(14):
        flat = torch.zeros(sum(sizes)).split(sizes)
        for p, part in zip(model.parameters(), flat):
            p.grad = part.view(p.shape)
        loss_of(script, model, step).backward()
        optimizer.step()
    return model.state_dict()


def _kill_itself(script):
    model = mlp()
    optimizer = script.optimizer(model)
    for step in range(_STEPS):
        if step == 2 and script.ranks == [1]:
            os.kill(os.getpid(), signal.SIGKILL)
        _step(script, model, optimizer, step)


_SCRIPT = """
import torch, evenshard
model = torch.nn.Linear(3, 2)
optimizer = torch.optim.Adam(model.parameters(), lr=0.1)
optimizer = evenshard.DistributedOptimizer(optimizer, model, topology="ring")
for step in range(3):
    optimizer.zero_grad()
    model(torch.full((4, 3), float(evenshard.rank() + step))).square().mean().backward()
    optimizer.step()
sums = optimizer.mean(float(sum(p.double().sum() for p in model.parameters())))
print(f"rank {evenshard.rank()} of {evenshard.workers()} has {sums:.9f}", flush=True)
"""


def _ddp(rank, workers, port):
    """What DistributedDataParallel computes, over gloo."""
    import torch.distributed
    os.environ.update(
        MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), GLOO_SOCKET_IFNAME="lo", USE_LIBUV="0",
    )
    torch.distributed.init_process_group("gloo", rank=rank, world_size=workers)
    model = mlp()
    parallel = nn.parallel.DistributedDataParallel(model)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    script = Script(rank, workers)
    for step in range(_STEPS):
        optimizer.zero_grad()
        inputs, targets = script.batch(step)
        nn.functional.mse_loss(parallel(inputs), targets).backward()
        optimizer.step()
    return {name: value.clone() for name, value in model.state_dict().items()}


def _of_the_script(script):
    model = mlp()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    optimizer = evenshard.DistributedOptimizer(optimizer, model, topology="ring")
    for step in range(_STEPS):
        _step(script, model, optimizer, step)
    return model.state_dict()


@unittest.skipIf(torch is None, "PyTorch is not installed: a ring of scripts")
class RingTest(unittest.TestCase):
    def values(self, habit, schedule, workers, **more):
        ends = outcomes_of(habit, schedule, workers, scheme="RING", **more)
        for end in ends:
            self.assertIsNone(end.error, end.trace)
        return [end.value for end in ends]

    def check_right(self, habit, workers, schedules=SCHEDULES):
        expected = reference_of(habit, workers)
        for schedule in schedules:
            with self.subTest(getattr(habit, "__name__", "rule"), schedule=schedule):
                values = self.values(habit, schedule, workers)
                for value in values:
                    torch.testing.assert_close(value, expected, rtol=1e-4, atol=1e-6)
                    torch.testing.assert_close(value, values[0], rtol=0, atol=0)

    def test_rules_at_the_workers(self):
        for name, rule in _rules().items():
            for workers in (2, 4):
                with self.subTest(rule=name, workers=workers):
                    self.check_right(_with_rule(rule), workers)

    def test_habits(self):
        for habit in (
            _sometimes_unused, _used_in_another_order, _assigning, _gradients_on_one_tensor
        ):
            self.check_right(habit, 2)
            self.check_right(habit, 3, ["BACKWARD"])

    def test_the_same_bits_from_run_to_run(self):
        for habit, workers in ((_of_the_script, 4), (_with_rule(_rules()["AdamW"]), 3)):
            runs = [self.values(habit, "BACKWARD", workers) for _ in range(2)]
            torch.testing.assert_close(runs[0], runs[1], rtol=0, atol=0)

    def test_beside_ddp(self):
        for workers in (2, 4):
            port = int(fixture.free_addresses(1)[0].rpartition(":")[2])
            processes = [
                fixture.Process(_ddp, rank, workers, port) for rank in range(workers)
            ]
            ends = fixture.outcomes(processes)
            for ours in self.values(_of_the_script, "BACKWARD", workers):
                for end in ends:
                    self.assertIsNone(end.error, end.trace)
                    torch.testing.assert_close(ours, end.value, rtol=1e-5, atol=1e-6)

    def test_buffers_are_rank_0s_and_travel_once(self):
        for schedule in SCHEDULES:
            first, second = self.values(_with_buffers, schedule, 2)
            torch.testing.assert_close(first[0], second[0], rtol=0, atol=0)
            self.assertNotEqual(float(first[0]["2.running_mean"].abs().sum()), 0)
            # 28,000 frozen elements come at the start, and 32,000 or so are trained.
            trained = sum(value.numel() for name, value in first[0].items() if name[0] != "0")
            most = 4 * (28000 + (_STEPS + 1) * (trained + 200))
            self.assertLess(first[1], most)

    def test_means(self):
        for means in self.values(_asking_for_means, "BACKWARD", 3):
            self.assertEqual(means, [1.0, 2.0, 3.0])

    def test_local_steps(self):
        values = self.values(_local_steps, "BACKWARD", 2)
        torch.testing.assert_close(values[0], values[1], rtol=0, atol=0)
        with_shards = outcomes_of(_local_steps, "BACKWARD", 2)
        torch.testing.assert_close(values[0], with_shards[0].value, rtol=1e-5, atol=1e-6)

    def test_what_ends_the_run(self):
        for habit, text in _ENDS:
            with self.subTest(habit.__name__):
                ends = outcomes_of(habit, "BACKWARD", 2, scheme="RING")
                self.assertRegex("\n".join(str(end.error) for end in ends), text)
                self.assertIsNotNone(ends[1].error)

    def test_what_is_refused(self):
        for habit, more, text in _REFUSED:
            with self.subTest(habit.__name__):
                for end in outcomes_of(habit, "BACKWARD", 2, scheme="RING", **more):
                    self.assertRegex(str(end.error), text)

    def test_a_ring_where_the_run_has_shards(self):
        for end in outcomes_of(_of_the_script, "BACKWARD", 2):
            self.assertIn("is 'ring', and the run has PARAMETER_SERVER", end.error)

    def test_all_say_which_worker_was_lost(self):
        ends = outcomes_of(_kill_itself, "BACKWARD", 3, scheme="RING")
        self.assertEqual(ends[1].kind, "Death")
        for rank in (0, 2):  # one has seen it first
            text = r"worker 1 \(.*?\) was lost: .*\(noticed by worker [02]\)"
            self.assertRegex(ends[rank].error, text)

    def start_script(self, text, environment, *command):
        with open(os.path.join(self.folder(), "train.py"), "w", encoding="utf-8") as file:
            file.write(text)
        programs = fixture.built("tools/launch/launch").removesuffix("/tools/launch/launch")
        environment = {
            **os.environ, "PYTHONPATH": fixture.PACKAGE, "EVENSHARD_PROGRAMS": programs,
            **environment,
        }
        environment.pop("EVENSHARD_CONFIG", None)
        return subprocess.Popen(
            [sys.executable, *command, file.name], env=environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True,
        )

    def folder(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        return folder.name

    def end_of(self, process):
        try:
            return process.communicate(timeout=fixture.PATIENCE_SECONDS)[0]
        finally:
            process.kill()
            process.wait()

    def check_script(self, codes, output, workers):
        self.assertEqual(set(codes), {0}, output)
        sums = re.findall(rf"rank \d of {workers} has (-?\d+\.\d+)", output)
        self.assertEqual(len(sums), workers, output)
        self.assertEqual(len(set(sums)), 1, output)

    def test_ctrl_c_in_one_worker_ends_the_others(self):
        def work(rank):
            model = mlp()
            optimizer = Script(rank, 3).optimizer(model)
            for step in range(1000):
                if step == 2 and rank == 0:
                    time.sleep(fixture.PATIENCE_SECONDS)
                _step(Script(rank, 3), model, optimizer, step)

        with fixture.Cluster(0, is_ring=True, workers=3, rule="", schedule="FULL") as cluster:
            workers = fixture.start_workers(cluster, work, workers=3)
            time.sleep(5)  # whenever it comes
            workers[1].signal(signal.SIGINT)
            ends = [workers[1].outcome(), workers[2].outcome()]
            workers[0].kill()
        self.assertEqual(ends[0].kind, "KeyboardInterrupt", ends[0].trace)
        self.assertIn("worker 1", ends[1].error)

    def test_what_torchrun_starts(self):
        """By its variables. Debian 12's torchrun does not run on its Python."""
        # Debian 13's PyTorch lacks libuv.
        in_a_group = (
            "import os, torch.distributed\n"
            "os.environ['USE_LIBUV'] = '0'\n"
            "torch.distributed.init_process_group('gloo')\n"
        )
        for workers, text in ((2, _SCRIPT), (3, _SCRIPT), (2, in_a_group + _SCRIPT)):
            port = fixture.free_addresses(1)[0].rpartition(":")[2]
            processes = [
                self.start_script(text, {
                    "RANK": str(rank), "LOCAL_RANK": str(rank), "WORLD_SIZE": str(workers),
                    "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "GLOO_SOCKET_IFNAME": "lo",
                })
                for rank in range(workers)
            ]
            output = "".join(map(self.end_of, processes))
            self.check_script([process.returncode for process in processes], output, workers)

    def test_who_is_not_started_is_missed(self):
        started = self.start_script(_SCRIPT, {"RANK": "0", "WORLD_SIZE": "2"})
        self.assertIn("the environment has no MASTER_ADDR, MASTER_PORT; allowed: a start by",
                      self.end_of(started))
        self.assertEqual(started.returncode, 1)

    def test_how_long_the_others_are_waited_for(self):
        port = fixture.free_addresses(1)[0].rpartition(":")[2]
        started = self.start_script(_SCRIPT, {
            "RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port,
            "EVENSHARD_OVERRIDES": "limits.startup_seconds=1.5",
        })
        self.assertIn("did not learn the addresses of all 2 workers within 1.5 s"
                      " (limits.startup_seconds)", self.end_of(started))
        self.assertEqual(started.returncode, 1)

    def run_command(self, *options):
        process = self.start_script(_SCRIPT, {}, "-m", "evenshard.run", *options)
        output = self.end_of(process)
        return process.returncode, output

    def test_the_command(self):
        code, output = self.run_command("--workers", "2", "--topology", "RING")
        self.check_script([code], output, 2)
        self.assertNotIn("[ps", output)

    def test_what_the_command_refuses(self):
        for options, text in [
            (["--topology", "RING"], "workers: is 1 with topology RING"),
            (["--topology", "RING", "--workers", "2", "--shards", "2"], "--shards"),
            (["--topology", "RING", "--workers", "2", "--policy", "ASYNC"], "is ASYNC with topo"),
            (["--topology", "RING", "--workers", "2", "--replicas", "1"], "recovery"),
            (["--topology", "RING", "--workers", "2", "--stats", "/dev/null"], "RING"),
            (["--topology", "RING", "--workers", "2", "--save", "/tmp/none"], "--save"),
            (["--topology", "star"], "allowed: PARAMETER_SERVER, RING"),
        ]:
            with self.subTest(options):
                code, output = self.run_command(*options)
                self.assertEqual(code, 2, output)
                self.assertIn(text, output)


if __name__ == "__main__":
    unittest.main()
