"""Whether a run under QUORUM has lost or doubled an update.

An update is the mean of the gradients of its set of workers, and which these are depends on the
moments of the faults. But the weights of an update add up to 1. What a rank pushes is always the
same (the backend EMULATED): ((i + rank) % 17 - 8) / 1000 for element i of a tensor. So the
difference between two models of as many updates is a sum over the ranks of d_r times that, in which
the d_r add up to 0 and are the same for every part of the model. A part that lacks an update, has
one twice or has one of another set than the others differs by a whole share.
"""

_PERIOD = 17
_STEP = 1e-3

# In updates. Rounding adds up to much less, and the smallest share is one in 16 workers.
_TOLERANCE = 0.03

# A part is as long as a chunk.
PART = 1024


def judge(tensors, reference, workers, learning_rate):
    """Compares two models. Returns what differs."""
    verdict = {"parts": 0, "problems": []}
    problems = verdict["problems"]
    if not tensors or tensors.keys() != reference.keys():
        problems.append("there is no saved model, or it has other tensors")
        return verdict
    first = None
    for name, values in sorted(tensors.items()):
        for begin in range(0, len(values), PART):
            verdict["parts"] += 1
            shares = _shares(values, reference[name], begin, workers, learning_rate)
            part = f"{name} from element {begin}"
            if abs(sum(shares)) > _TOLERANCE:
                problems.append(f"{part} has {sum(shares):+.2f} updates")
            if first is None:
                first = shares
            elif max(abs(a - b) for a, b in zip(shares, first)) > _TOLERANCE:
                problems.append(f"{part} has updates of other workers than the first part")
    if len(problems) > 3:
        verdict["problems"] = [*problems[:3], f"and {len(problems) - 3} more of these"]
    return verdict


def pushed(element, rank):
    """What a rank pushes of an element of a tensor."""
    return ((element + rank) % _PERIOD - 8) * _STEP


def _shares(values, reference, begin, workers, learning_rate):
    """Returns by how much more each rank's gradient is in a part, by least squares."""
    sums, counts = [0.0] * _PERIOD, [0] * _PERIOD
    for i in range(begin, min(begin + PART, len(values))):
        sums[i % _PERIOD] += (reference[i] - values[i]) / learning_rate
        counts[i % _PERIOD] += 1
    rows = [
        ([pushed(residue, rank) for rank in range(workers)], total / count)
        for residue, (total, count) in enumerate(zip(sums, counts))
        if count
    ]
    matrix = [
        [sum(row[a] * row[b] for row, _ in rows) for b in range(workers)]
        + [sum(row[a] * value for row, value in rows)]
        for a in range(workers)
    ]
    return _solve(matrix)


def _solve(matrix):
    """Gauss's elimination with pivots; the last column is the right side."""
    size = len(matrix)
    for column in range(size):
        pivot = max(range(column, size), key=lambda row: abs(matrix[row][column]))
        matrix[column], matrix[pivot] = matrix[pivot], matrix[column]
        for row in range(size):
            if row != column:
                factor = matrix[row][column] / matrix[column][column]
                matrix[row] = [a - factor * b for a, b in zip(matrix[row], matrix[column])]
    return [matrix[i][size] / matrix[i][i] for i in range(size)]
