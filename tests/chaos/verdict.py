"""Whether a run has lost or doubled an update.

What the workers push is known before: it follows from the rank, the iteration and the element, and
not from the parameters (pusher.c). So the last checkpoint of a run of N iterations and the model
that is saved have the bits of an undisturbed run, wherever a worker died: an update that lacks a
gradient, has one twice or has another iteration's changes them.
"""

import json


def judge(manifest, iterations, workers, reference, models):
    """Judges the manifest of a run's last checkpoint.

    `workers`: how many there are, if all must count in every update; otherwise None. `reference`:
    the manifest of the undisturbed run. `models`: the bytes of the two models saved at the end.
    """
    verdict = {"chunks": 0, "problems": []}
    problems = verdict["problems"]
    if manifest is None:
        problems.append("there is no complete checkpoint")
        return verdict
    content = manifest["content"]
    at = content["checkpoint"]["iteration"]
    if at != iterations:
        problems.append(f"the last checkpoint is of iteration {at} instead of {iterations}")
    for iteration in _chunk_iterations(content):
        verdict["chunks"] += 1
        if iteration != at:
            problems.append(f"a chunk is at iteration {iteration} instead of {at}")
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
