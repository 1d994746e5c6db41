"""Does a fault to a run, and undoes it."""

import signal
import time

from tests.chaos import cluster, schedule


class Missed(Exception):
    """The process that the fault is for is not there, and the fault was not done."""


def strike(fault, run, ground):
    """Does a fault, for as long as it lasts. Returns when it began, as time.monotonic() says it."""
    if fault.kind == schedule.FULL_DISK:
        return _during(fault.seconds, ground.fill_disk, ground.free_disk)
    if fault.kind == schedule.CUT:
        shard = _place(fault.targets[0])
        return _during(fault.seconds, lambda: ground.cut(shard), lambda: ground.join(shard))
    numbers = [run.find(target) for target in fault.targets]
    if None in numbers:
        raise Missed(f"{fault}: {fault.targets[numbers.index(None)]} does not run")
    if fault.kind == schedule.STOP:
        return _during(
            fault.seconds,
            lambda: cluster.send(numbers[0], signal.SIGSTOP),
            # A process that was silent for too long has been killed in the meantime.
            lambda: cluster.send(numbers[0], signal.SIGCONT),
        )
    if fault.kind == schedule.RESET:
        return _reset(fault.targets[0], numbers[0], ground)
    begin = time.monotonic()
    for number in numbers:
        cluster.send(number, signal.SIGKILL)
    return begin


def _during(seconds, do, undo):
    begin = time.monotonic()
    try:
        do()
        time.sleep(max(0.0, begin + seconds - time.monotonic()))
    finally:
        undo()
    return begin


def _reset(target, number, ground):
    if target.startswith("ps"):
        begin = time.monotonic()
        ground.reset_shard(_place(target))
        return begin
    ports = ground.connections(number)
    begin = time.monotonic()
    ground.reset(ports)
    return begin


def _place(target):
    return int(target.split()[1])
