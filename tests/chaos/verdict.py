"""Whether a run has lost or doubled an update, by its last checkpoint.

What the workers push is known before: it follows from the rank, the iteration and the element, and
not from the parameters (pusher.c). So the last checkpoint of a run of N iterations and the model
that is saved have the bits of an undisturbed run, wherever a worker died: an update that lacks a
gradient, has one twice or has another iteration's changes them.
"""

import json

from tests.chaos import ledger, models, modes, shares


def of_run(mode, iterations, workers, outcome, reference):
    """Judges a run in a mode. `workers`: how many there are, and whether all must count in every
    update. `outcome`, `reference`: the campaign's, of the run and of the undisturbed one."""
    count, all_count = workers
    if mode.judged_by == modes.BITS:
        return judge(
            outcome.manifest, iterations, count if all_count else None, reference.manifest,
            (outcome.model, reference.model),
        )
    if mode.judged_by == modes.LEDGER:
        judged = ledger.judge(
            models.tensors(outcome.model), initial, iterations, list(map(ledger.read, outcome.told))
        )
        if outcome.manifest is None:
            judged["problems"].append("there is no complete checkpoint")
        return judged
    judged = shares.judge(
        models.tensors(outcome.model), models.tensors(reference.model), count,
        modes.RATE,
    )
    judged["problems"] += _of_iterations(outcome.manifest, iterations, {})
    return judged


def initial(element):
    """An element of a tensor before the training (pusher.c)."""
    return element % 7


def judge(manifest, iterations, workers, reference, models):
    """Judges the manifest of a run's last checkpoint.

    `workers`: how many there are, if all must count in every update; otherwise None. `reference`:
    the manifest of the undisturbed run. `models`: the bytes of the two models saved at the end.
    """
    verdict = {"chunks": 0, "problems": []}
    problems = verdict["problems"]
    problems += _of_iterations(manifest, iterations, verdict)
    if manifest is None:
        return verdict
    content = manifest["content"]
    everyone = [{"from_iteration": 0, "assignments": 0, "rank": list(range(workers or 0))}]
    if workers is not None and content["checkpoint"]["worker_set"] != everyone:
        problems.append("a worker was left out of updates")
    # Data written by the same program: checksums of every array, by tensor and chunk.
    verdict["state_is_equal"] = _arrays(content) == _arrays(reference["content"])
    if not verdict["state_is_equal"]:
        problems.append("the last checkpoint has other bits than the undisturbed run's")
    verdict["model_is_equal"] = models[0] == models[1]
    if not verdict["model_is_equal"]:
        problems.append("the saved model has other bits than the undisturbed run's")
    return verdict


def _of_iterations(manifest, iterations, verdict):
    """Returns what is wrong with where the chunks of the last checkpoint are. Counts them."""
    if manifest is None:
        return ["there is no complete checkpoint"]
    content = manifest["content"]
    at = content["checkpoint"]["iteration"]
    problems = []
    if at != iterations:
        problems.append(f"the last checkpoint is of iteration {at} instead of {iterations}")
    found = list(_chunk_iterations(content))
    verdict["chunks"] = len(found)
    return problems + [
        f"a chunk is at iteration {iteration} instead of {at}"
        for iteration in found
        if iteration != at
    ]


def parse(text):
    return json.loads(text) if text else None


def _chunk_iterations(content):
    for record in content["records"]:
        for part in record["slices"]:
            for index in part["clocks"]:
                clock = record["clocks"][index]
                yield clock["iteration"] - clock["assignments"]


def _arrays(content):
    return [
        (record["shard"], part["tensor"], part["begin"], part["size"], part["checksums"])
        for record in sorted(content["records"], key=lambda record: record["shard"])
        for part in record["slices"]
    ]
