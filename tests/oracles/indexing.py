"""Golden tapes of GATHER, SCATTER_ADD, SCATTER, TAKE_ALONG, TAKE_ALONG_GRAD, ONE_HOT with their oob= modes and faults, computed by NumPy."""
import numpy as np

from golden import ALL, INTS, FLOATS, Golden, cast, sample, shape_text

rng = np.random.default_rng(2)
NUMBERS = FLOATS + INTS
# shape of the indexed tensor, axis, shape of idx
CASES = [((5,), 0, (3,)), ((5,), 0, ()), ((4, 3), 0, (6,)), ((4, 3), 1, (2, 2)), ((4, 3), -1, ()), ((2, 3, 4), 1, (5,)),
         ((2, 3, 4), 2, (1, 3)), ((3, 2, 1, 2, 2), 2, (2,)), ((33,), 0, (31,)), ((4, 3), 0, (0,)), ((4, 0), 0, (2,)),
         ((1, 7), 0, (3,))]


def indices(n, shape, dtype, mode):
    if mode == "fault":
        return rng.integers(0, n, shape).astype(np.int64)
    low, high = -3, n + 3
    return rng.integers(low, high, shape).astype(np.int64)


def take(values, idx, axis, mode):
    n = values.shape[axis]
    inside = (idx >= 0) & (idx < n)
    taken = np.take(values, np.clip(idx, 0, n - 1), axis)
    if mode != "zero":
        return taken
    axis %= values.ndim
    mask = inside.reshape((1,) * axis + idx.shape + (1,) * (values.ndim - axis - 1))
    return np.where(mask, taken, np.zeros((), values.dtype))


def mode_text(mode):
    return "" if mode == "fault" else f", oob={mode}"


def gather():
    g = Golden("gather", "gather: src taken at idx along axis=; oob=zero gives zeros, oob=clip the nearest element")
    cases = [(case, "fault") for case in CASES]
    cases += [(case, mode) for mode in ("zero", "clip") for case in CASES[:8]]
    cases += [(((3, 2), 0, (4,)), mode) for mode in ("fault", "zero") for _ in ALL]
    for i, ((shape, axis, at), mode) in enumerate(cases):
        dtype, index = ALL[i % len(ALL)], ("i32", "i64")[i // 3 % 2]
        values = sample(rng, shape, dtype)
        idx = indices(shape[axis], at, index, mode)
        x, k, y = g.input(values, dtype), g.input(idx, index), g.fresh("y")
        g.add(f"GATHER {y}, {x}, {k}" + (f", axis={axis}" if axis else "") + mode_text(mode))
        g.expect(y, take(values, idx, axis, mode), dtype)
    g.write()


def add_at(before, idx, source, axis, mode, dtype):
    n = before.shape[axis]
    total = np.moveaxis(before.astype(np.float64 if dtype in FLOATS else np.int64), axis, 0).copy()
    lead = axis % before.ndim
    parts = np.moveaxis(source.reshape(before.shape[:lead] + (idx.size,) + before.shape[lead + 1:]), lead, 0)
    for place, part in zip(idx.reshape(-1), parts):
        if 0 <= place < n:
            total[place] += part
        elif mode == "clip":
            total[np.clip(place, 0, n - 1)] += part
    return cast(np.moveaxis(total, 0, axis), dtype)


def scatter_add():
    g = Golden("scatter_add", "scatter_add: dst taken at idx += src, repeated indices in rising order")
    cases = [(case, "fault") for case in CASES]
    cases += [(case, mode) for mode in ("zero", "clip") for case in CASES[:8]]
    cases += [(((3, 2), 0, (6,)), mode) for mode in ("fault", "clip") for _ in NUMBERS]
    for i, ((shape, axis, at), mode) in enumerate(cases):
        dtype, index = NUMBERS[i % len(NUMBERS)], ("i32", "i64")[i // 3 % 2]
        lead = axis % len(shape)
        before = sample(rng, shape, dtype)
        source = sample(rng, shape[:lead] + at + shape[lead + 1:], dtype)
        idx = indices(shape[axis], at, index, mode)
        dst = g.declare("state", before, dtype, g.fresh("dst"))
        k, x = g.input(idx, index), g.input(source, dtype)
        g.add(f"SCATTER_ADD {dst}, {k}, {x}" + (f", axis={axis}" if axis else "") + mode_text(mode))
        g.expect(dst, add_at(before, idx, source, axis, mode, dtype), dtype)
    # Halves are rounded once, after the last add: 2048 + 1 + 1 is 2050, not 2048.
    for dtype, large in (("f16", 2048), ("bf16", 256)):
        dst = g.declare("state", np.array([large, 1]), dtype, g.fresh("dst"))
        k, x = g.input(np.array([0, 0]), "i64"), g.input(np.array([1, 1]), dtype)
        g.add(f"SCATTER_ADD {dst}, {k}, {x}")
        g.expect(dst, np.array([large + 2, 1]), dtype)
    g.write()


def one_hot():
    g = Golden("one_hot", "one_hot: 1 at the index, 0 elsewhere; the depth is the last dimension of dst")
    cases = [((), 3, "fault"), ((4,), 5, "fault"), ((2, 3), 4, "fault"), ((2, 1, 2, 2), 3, "fault"), ((0,), 4, "fault"),
             ((33,), 1, "fault"), ((6,), 3, "zero"), ((2, 4), 3, "clip"), ((5,), 1, "zero"), ((5,), 2, "clip")]
    cases += [((3,), 4, mode) for mode in ("fault", "zero", "clip") for _ in ALL]
    for i, (shape, depth, mode) in enumerate(cases):
        dtype, index = ALL[i % len(ALL)], ("i32", "i64")[i // 3 % 2]
        idx = indices(depth, shape, index, mode)
        hot = np.clip(idx, 0, depth - 1) if mode == "clip" else idx
        k, y = g.input(idx, index), g.fresh("y")
        g.add(f"ONE_HOT {y}, {k}, dtype={dtype}, shape={shape_text(shape + (depth,))}" + mode_text(mode))
        g.expect(y, (hot[..., None] == np.arange(depth)).astype(np.int64), dtype)
    g.write()


def faults():
    g = Golden("gather-fault", "gather: the first index outside is named, and nothing of the command is written")
    g.input(np.arange(10), "f32", "table")
    g.input(np.array([[1, 9], [10, -1]]), "i32", "idx")
    g.declare("state", np.array([[5, 6], [7, 8]]), "f32", "dst")
    g.add("GATHER dst, table, idx")
    g.expect_fault("GATHER", "index 10 at idx[1,0] is outside [0,10)")
    g.expect("dst", np.array([5, 6, 7, 8]), "f32")
    g.write()

    g = Golden("gather-negative-fault", "gather: a negative index does not count from the end")
    g.input(np.arange(3), "i64", "table")
    g.input(np.array(-1), "i64", "idx")
    g.declare("state", np.array(4), "i64", "dst")
    g.add("GATHER dst, table, idx")
    g.expect_fault("GATHER", "index -1 at idx is outside [0,3)")
    g.expect("dst", np.array([4]), "i64")
    g.write()

    g = Golden("scatter_add-fault", "scatter_add: a bad index after good ones leaves dst as it was")
    g.declare("state", np.array([1, 2, 3]), "f32", "dst")
    g.input(np.array([0, 1, 3]), "i64", "idx")
    g.input(np.array([10, 20, 30]), "f32", "src")
    g.add("SCATTER_ADD dst, idx, src")
    g.expect_fault("SCATTER_ADD", "index 3 at idx[2] is outside [0,3)")
    g.expect("dst", np.array([1, 2, 3]), "f32")
    g.write()

    g = Golden("one_hot-fault", "one_hot: an index at the depth is a fault")
    g.declare("state", np.zeros((2, 3)), "u8", "dst")
    g.input(np.array([0, 3]), "i32", "idx")
    g.add("ONE_HOT dst, idx")
    g.expect_fault("ONE_HOT", "index 3 at idx[1] is outside [0,3)")
    g.expect("dst", np.zeros((2, 3)), "u8")
    g.write()

    g = Golden("gather-empty-fault", "gather: over an axis of size 0 there is nothing to clip to")
    g.input(np.zeros((0, 2)), "f32", "table")
    g.input(np.array([0]), "i32", "idx")
    g.declare("state", np.array([[1, 2]]), "f32", "dst")
    g.add("GATHER dst, table, idx, oob=clip")
    g.expect_fault("GATHER", "index 0 at idx[0] is outside [0,0)")
    g.expect("dst", np.array([1, 2]), "f32")
    g.write()


def scatter():
    g = Golden("scatter", "scatter: dst taken at idx = src; of repeated indices the last stays")
    cases = [(case, "fault") for case in CASES]
    cases += [(case, mode) for mode in ("zero", "clip") for case in CASES[:8]]
    cases += [(((3, 2), 0, (6,)), mode) for mode in ("fault", "clip") for _ in ALL]
    for i, ((shape, axis, at), mode) in enumerate(cases):
        dtype, index = ALL[i % len(ALL)], ("i32", "i64")[i // 3 % 2]
        lead, n = axis % len(shape), shape[axis]
        before = sample(rng, shape, dtype)
        source = sample(rng, shape[:lead] + at + shape[lead + 1:], dtype)
        idx = indices(n, at, index, mode)
        after = np.moveaxis(before.copy(), lead, 0)
        parts = np.moveaxis(source.reshape(shape[:lead] + (idx.size,) + shape[lead + 1:]), lead, 0)
        for place, part in zip(idx.reshape(-1), parts):
            if mode == "clip" or 0 <= place < n:
                after[np.clip(place, 0, n - 1)] = part
        dst = g.declare("state", before, dtype, g.fresh("dst"))
        k, x = g.input(idx, index), g.input(source, dtype)
        g.add(f"SCATTER {dst}, {k}, {x}" + (f", axis={axis}" if axis else "") + mode_text(mode))
        g.expect(dst, np.moveaxis(after, 0, lead), dtype)
    g.write()


# shape of the indexed tensor, axis, size of idx along it
ALONG = [((5,), 0, 3), ((5,), -1, 7), ((4, 3), 0, 2), ((4, 3), 1, 5), ((2, 3, 4), 1, 2), ((2, 3, 4), -1, 1), ((2, 3, 4), 0, 3),
         ((33, 2), 0, 31), ((2, 2, 3, 1, 2), 2, 4), ((4, 3), 0, 0), ((0, 3), 1, 2), ((3, 65), 0, 4)]


def along_cases(dtypes):
    cases = [(case, "fault") for case in ALONG] + [(case, mode) for mode in ("zero", "clip") for case in ALONG[:9]]
    return cases + [(((3, 2), 0, 4), mode) for mode in ("fault", "zero") for _ in dtypes]


def along_text(axis, shape, mode):
    return ("" if axis % len(shape) == len(shape) - 1 and axis >= 0 else f", axis={axis}") + mode_text(mode)


def take_along():
    g = Golden("take_along", "take_along: an index for every element, along axis= (the last when not given)")
    for i, ((shape, axis, count), mode) in enumerate(along_cases(ALL)):
        dtype, index = ALL[i % len(ALL)], ("i32", "i64")[i // 3 % 2]
        values, n = sample(rng, shape, dtype), shape[axis]
        at = list(shape)
        at[axis] = count
        idx = indices(n, at, index, mode)
        taken = np.take_along_axis(values, np.clip(idx, 0, max(0, n - 1)), axis)
        if mode == "zero":
            taken = np.where((idx >= 0) & (idx < n), taken, np.zeros((), values.dtype))
        x, k, y = g.input(values, dtype), g.input(idx, index), g.fresh("y")
        g.add(f"TAKE_ALONG {y}, {x}, {k}" + along_text(axis, shape, mode))
        g.expect(y, taken, dtype)
    g.write()


def take_along_grad():
    g = Golden("take_along_grad", "take_along_grad: g is added to the elements that idx names, in rising order")
    for i, ((shape, axis, count), mode) in enumerate(along_cases(NUMBERS)):
        dtype, index = NUMBERS[i % len(NUMBERS)], ("i32", "i64")[i // 3 % 2]
        n, at = shape[axis], list(shape)
        at[axis] = count
        idx, grad, before = indices(n, at, index, mode), sample(rng, at, dtype), sample(rng, shape, dtype)
        total = before.astype(np.float64 if dtype in FLOATS else np.int64).copy()
        for place in np.ndindex(*at):
            to = list(place)
            to[axis] = np.clip(idx[place], 0, n - 1) if mode == "clip" else idx[place]
            if 0 <= to[axis] < n:
                total[tuple(to)] += grad[place]
        dst = g.declare("state", before, dtype, g.fresh("dst"))
        k, x = g.input(idx, index), g.input(grad, dtype)
        g.add(f"TAKE_ALONG_GRAD {dst}, {k}, {x}" + along_text(axis, shape, mode))
        g.expect(dst, cast(total, dtype), dtype)
    # Halves are rounded once, after the last add: 2048 + 1 + 1 is 2050, not 2048.
    dst = g.declare("state", np.array([2048, 1]), "f16", g.fresh("dst"))
    k, x = g.input(np.array([0, 0]), "i64"), g.input(np.array([1, 1]), "f16")
    g.add(f"TAKE_ALONG_GRAD {dst}, {k}, {x}")
    g.expect(dst, np.array([2050, 1]), "f16")
    g.write()


def embedding():
    g = Golden("embedding", "embedding: another spelling of gather, the rows of a table")
    values, idx = sample(rng, (5, 3), "f32"), np.array([[4, 0], [2, 2]])
    x, k = g.input(values, "f32", "table"), g.input(idx, "i32", "tokens")
    g.add(f"EMBEDDING y, {x}, {k}")
    g.add(f"embedding z, {x}, {k}, oob=clip")
    g.expect("y", values[idx], "f32")
    g.expect("z", values[idx], "f32")
    g.write()


def more_faults():
    g = Golden("scatter-fault", "scatter: a bad index after good ones leaves dst as it was")
    g.declare("state", np.array([1, 1, 1]), "bool", "dst")
    g.input(np.array([0, -1]), "i64", "idx")
    g.input(np.array([0, 0]), "bool", "src")
    g.add("SCATTER dst, idx, src")
    g.expect_fault("SCATTER", "index -1 at idx[1] is outside [0,3)")
    g.expect("dst", np.array([1, 1, 1]), "bool")
    g.write()

    g = Golden("take_along-fault", "take_along: the first index outside is named")
    g.input(np.array([[1, 2], [3, 4]]), "f32", "x")
    g.input(np.array([[0, 1], [2, 0]]), "i32", "idx")
    g.declare("state", np.zeros((2, 2)), "f32", "dst")
    g.add("TAKE_ALONG dst, x, idx")
    g.expect_fault("TAKE_ALONG", "index 2 at idx[1,0] is outside [0,2)")
    g.expect("dst", np.zeros(4), "f32")
    g.write()

    g = Golden("take_along_grad-fault", "take_along_grad: a bad index leaves dst as it was")
    g.declare("state", np.array([1, 2]), "f32", "dst")
    g.input(np.array([0, 2]), "i32", "idx")
    g.input(np.array([5, 5]), "f32", "g")
    g.add("TAKE_ALONG_GRAD dst, idx, g")
    g.expect_fault("TAKE_ALONG_GRAD", "index 2 at idx[1] is outside [0,2)")
    g.expect("dst", np.array([1, 2]), "f32")
    g.write()


for write in (gather, scatter_add, one_hot, faults, scatter, take_along, take_along_grad, embedding, more_faults):
    write()
