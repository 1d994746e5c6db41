"""Whether a run has lost or doubled an update.

A chunk's clock counts its updates. In a run of N iterations that has lost and doubled none, the
last checkpoint, which is of iteration N, has version N and iteration N for every chunk. If nobody
is left out of an update (recovery.worker_loss: WAIT) and `update.deterministic` is set, an update
that lacks a gradient or has one twice, from whichever iteration, also changes the bits of the
parameters, so these and the optimizer's state must be equal to those of an undisturbed run.
"""

import json


def judge(manifest, iterations, workers, reference=None, models=None):
    """Judges the manifest of a run's last checkpoint.

    `reference`: the manifest of the undisturbed run. `models`: the bytes of the two models saved at
    the end. Both are only for runs whose bits must be equal.
    """
    verdict = {"chunks": 0, "lost_updates": 0, "doubled_updates": 0, "problems": []}
    problems = verdict["problems"]
    if manifest is None:
        problems.append("there is no complete checkpoint")
        return verdict
    content = manifest["content"]
    at = content["checkpoint"]["iteration"]
    if at != iterations:
        problems.append(f"the last checkpoint is of iteration {at} instead of {iterations}")
    for clock in _chunk_clocks(content):
        verdict["chunks"] += 1
        verdict["lost_updates"] += max(0, at - clock["version"])
        verdict["doubled_updates"] += max(0, clock["version"] - at)
        if clock["iteration"] != at:
            problems.append(f"a chunk is at iteration {clock['iteration']} instead of {at}")
    for what in ("lost", "doubled"):
        if verdict[what + "_updates"]:
            problems.append(f"{verdict[what + '_updates']} updates of chunks were {what}")
    if reference is None:
        return verdict

    everyone = [{"from_iteration": 0, "rank": list(range(workers))}]
    if content["checkpoint"]["worker_set"] != everyone:
        problems.append("a worker was left out of updates")
    # Data written by the same program: checksums of every array, by tensor and chunk.
    verdict["state_is_equal"] = _arrays(content) == _arrays(reference["content"])
    if not verdict["state_is_equal"]:
        problems.append("the last checkpoint has other bits than the undisturbed run's")
    if models is not None:
        verdict["model_is_equal"] = models[0] == models[1]
        if not verdict["model_is_equal"]:
            problems.append("the saved model has other bits than the undisturbed run's")
    return verdict


def parse(text):
    return json.loads(text) if text else None


def _chunk_clocks(content):
    for record in content["records"]:
        for part in record["slices"]:
            for index in part["clocks"]:
                yield record["clocks"][index]


def _arrays(content):
    return [
        (record["shard"], part["tensor"], part["begin"], part["size"], part["checksums"])
        for record in sorted(content["records"], key=lambda record: record["shard"])
        for part in record["slices"]
    ]
