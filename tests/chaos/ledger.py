"""Whether an asynchronous run has lost or doubled a push.

Each push takes 1 from some elements of every chunk, and which these are says whose push it was and
of which iteration: in each PERIOD elements, those of rank r are `slots` ones, and iteration i takes
1 from number i % slots of them (pusher.c). Whatever the order, sums are exact. So the parameters
count the pushes that were applied, chunk by chunk.

What a worker was told is in its log: each iteration that was answered completely must have counted
everywhere. Of one in whose middle it was killed, any part may have counted, since its replacement
goes on with the next one. Nothing may have counted twice. When a run has gone back to a checkpoint,
whose chunks are not of one moment, some iterations before it are left out too (docs/modes.md).
"""

import dataclasses

PERIOD = 256


def slots_of(workers):
    return PERIOD // workers


@dataclasses.dataclass
class Told:
    """What the workers of a rank have logged."""

    answered: set  # iterations of which everything was answered, since `back`
    begun: int = 0  # iterations, of which the last may have been pushed in part
    went_back: int = 0


def read(text):
    """Reads a rank's log. A line is `start I` or `back I`, when a process goes on with iteration I
    because it is new or because the run has gone back, `push I`, or `done I`."""
    told = Told(set())
    for line in text.splitlines():
        what, _, number = line.partition(" ")
        if not number.isdigit():
            continue  # the last line of a process that was killed may be torn
        iteration = int(number)
        if what == "push":
            told.begun = max(told.begun, iteration + 1)
        elif what == "done":
            told.answered.add(iteration)
        elif what == "back" or any(answered >= iteration for answered in told.answered):
            told.answered.clear()
            told.went_back += 1
    return told


def judge(tensors, initial, iterations, told):
    """Judges the parameters at the end of a run. `initial`: the value of an element of a tensor at
    the beginning, by its number; `told`: what each rank has been told."""
    workers = len(told)
    slots = slots_of(workers)
    least, most = [], []
    for each in told:
        answered = [0] * slots
        for iteration in each.answered:
            answered[iteration % slots] += 1
        least.append(answered)
        most.append([len(range(slot, min(iterations, each.begun), slots)) for slot in range(slots)])
    verdict = {
        "pushes": 0,
        "left_out": 0,
        "went_back": sum(each.went_back for each in told),
        "problems": [],
    }
    if not tensors:
        verdict["problems"].append("there is no saved model")
    lost, doubled, strange = [], [], []
    for name, values in sorted(tensors.items()):
        for i, value in enumerate(values):
            rank, slot = divmod(i % PERIOD, slots)
            counted = initial(i) - value
            where = f"rank {rank}, iterations {slot} + {slots} n, at {name} {i}"
            if rank >= workers:
                if counted != 0:
                    strange.append(f"nobody's element has changed, {name} {i}")
                continue
            verdict["pushes"] += int(counted)
            verdict["left_out"] += max(0, most[rank][slot] - int(counted))
            if counted < least[rank][slot]:
                lost.append(f"{where}: {counted:g} of {least[rank][slot]} that were answered")
            if counted > most[rank][slot]:
                doubled.append(f"{where}: {counted:g} of {most[rank][slot]}")
    for what, found in (("lost pushes", lost), ("doubled pushes", doubled), ("", strange)):
        if found:
            verdict["problems"].append(f"{what} in {len(found)} elements: {found[0]}".strip())
    return verdict
