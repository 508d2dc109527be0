"""Golden tapes of RESHAPE, TRANSPOSE, BROADCAST, CONCAT, SLICE, SLICE_GRAD, computed by NumPy."""
import numpy as np

from golden import ALL, FLOATS, Golden, cast, sample, shape_text

rng = np.random.default_rng(1)
SHAPES = [(), (1,), (7,), (0,), (2, 3), (1, 5), (3, 0), (2, 3, 4), (2, 1, 3, 2), (2, 3, 1, 2, 3)]


def reshape():
    g = Golden("reshape", "reshape: the same elements, in row-major order, under another shape")
    cases = [((6,), (2, 3)), ((2, 3), (6,)), ((), (1, 1)), ((1,), ()), ((2, 3, 4), (4, 6)), ((2, 3, 1, 2, 3), (9, 4)),
             ((3, 0), (0, 7)), ((33,), (3, 11, 1))]
    for i, (source, target) in enumerate(cases + [((5, 3), (3, 5))] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, source, dtype)
        x, y = g.input(values, dtype), g.fresh("y")
        g.add(f"RESHAPE {y}, {x}, shape={shape_text(target)}")
        g.expect(y, values, dtype)
    g.write()


def transpose():
    g = Golden("transpose", "transpose: without perm= the axes are reversed")
    cases = [(shape, None) for shape in SHAPES]
    cases += [((2, 3, 4), (0, 2, 1)), ((2, 3, 4), (1, 0, 2)), ((2, 3, 4), (2, 0, 1)), ((2, 1, 3, 2), (0, 3, 1, 2)),
              ((2, 3, 1, 2, 3), (4, 2, 0, 1, 3)), ((33, 35), None), ((31, 2, 33), (2, 1, 0)), ((4, 5), (0, 1))]
    cases += [((3, 5), None)] * len(ALL)
    for i, (shape, perm) in enumerate(cases):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, shape, dtype)
        x, y = g.input(values, dtype), g.fresh("y")
        g.add(f"TRANSPOSE {y}, {x}" + (f", perm={shape_text(perm)}" if perm else ""))
        g.expect(y, np.transpose(values, perm), dtype)
    g.write()


def broadcast():
    g = Golden("broadcast", "broadcast: NumPy's rules")
    cases = [((), (2, 2)), ((), ()), ((1,), (5,)), ((3,), (2, 3)), ((2, 1), (2, 5)), ((1, 1), (3, 2)),
             ((2, 1, 3), (2, 4, 3)), ((3, 1), (2, 3, 2)), ((1, 0), (3, 0)), ((2, 1, 1, 2, 1), (2, 3, 2, 2, 2)),
             ((1, 33), (3, 33)), ((33, 1), (33, 3)), ((4, 3), (4, 3))]
    for i, (source, target) in enumerate(cases + [((2, 1), (2, 3))] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, source, dtype)
        x, y = g.input(values, dtype), g.fresh("y")
        g.add(f"BROADCAST {y}, {x}, shape={shape_text(target)}")
        g.expect(y, np.broadcast_to(values, target), dtype)
    g.write()


def concat():
    g = Golden("concat", "concat: the sources one after another along axis=")
    cases = [([(2,), (3,)], 0), ([(1,), (0,), (4,)], 0), ([(2, 3), (1, 3)], 0), ([(2, 3), (2, 1), (2, 2)], 1),
             ([(2, 3), (2, 2)], -1), ([(5,)], 0), ([(2, 1, 3), (2, 4, 3)], 1), ([(2, 3, 2), (2, 3, 1)], 2),
             ([(0, 3), (0, 3)], 0), ([(1, 2, 1, 2, 1), (1, 2, 3, 2, 1)], 2), ([(31, 2), (33, 2)], 0)]
    for i, (shapes, axis) in enumerate(cases + [([(2, 2), (2, 1)], 1)] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = [sample(rng, shape, dtype) for shape in shapes]
        names = [g.input(value, dtype) for value in values]
        y = g.fresh("y")
        g.add(f"CONCAT {y}, {', '.join(names)}" + (f", axis={axis}" if axis else ""))
        g.expect(y, np.concatenate(values, axis), dtype)
    g.write()


# shape, start, stop, step (None: not written)
SLICES = [((7,), [2], [5], None), ((7,), [0], [7], [3]), ((7,), [-4], [-1], [2]), ((5,), [3], [3], None),
          ((4, 5), [1], [3], None), ((4, 5), [0, 1], [4, 4], [2, 2]), ((3, 4, 2), [1, 0, 1], [3, 4, 2], [1, 3, 1]),
          ((2, 3, 4), [0, -2], [2, 3], None), ((0, 3), [0], [0], None), ((2, 3, 2, 2, 3), [1, 0, 1], [2, 3, 2], [1, 2, 1]),
          ((33,), [1], [33], [2]), ((1, 1), [0, 0], [1, 1], None)]


def attributes(start, stop, step):
    text = f"start={shape_text(start)}, stop={shape_text(stop)}"
    return text + (f", step={shape_text(step)}" if step else "")


def index_of(start, stop, step):
    return tuple(slice(a, b, s) for a, b, s in zip(start, stop, step or [1] * len(start)))


def slices():
    g = Golden("slice", "slice: NumPy's basic slices of the leading axes, the rest whole")
    for i, (shape, start, stop, step) in enumerate(SLICES + [((4, 3), [1, 0], [4, 3], [2, 2])] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, shape, dtype)
        x, y = g.input(values, dtype), g.fresh("y")
        g.add(f"SLICE {y}, {x}, {attributes(start, stop, step)}")
        g.expect(y, values[index_of(start, stop, step)], dtype)
    g.write()


def slice_grad():
    g = Golden("slice_grad", "slice_grad: the gradient of SLICE, zeros outside the slice; acc=1 adds it to dst")
    for i, (shape, start, stop, step) in enumerate(SLICES + [((4, 3), [1, 0], [4, 3], [2, 2])] * len(FLOATS)):
        dtype = FLOATS[i % len(FLOATS)]
        where = index_of(start, stop, step)
        grad = sample(rng, np.zeros(shape)[where].shape, dtype)
        source, y = g.input(grad, dtype), g.fresh("y")
        g.add(f"SLICE_GRAD {y}, {source}, {attributes(start, stop, step)}, shape={shape_text(shape)}")
        whole = np.zeros(shape, grad.dtype)
        whole[where] = grad
        g.expect(y, whole, dtype)
        before = sample(rng, shape, dtype)
        total = g.declare("state", before, dtype, g.fresh("total"))
        g.add(f"SLICE_GRAD {total}, {source}, {attributes(start, stop, step)}, acc=1")
        g.expect(total, cast(before.astype(np.float64) + whole.astype(np.float64), dtype), dtype)
    g.write()


for write in (reshape, transpose, broadcast, concat, slices, slice_grad):
    write()
