"""Golden tapes of SPLIT, PAD, PAD_GRAD, FLIP, the dynamic slices and TRIANGLE, computed by NumPy."""
import numpy as np

from golden import ALL, FLOATS, Golden, cast, literal, sample, shape_text

rng = np.random.default_rng(11)


def split():
    g = Golden("split", "split: src cut along axis=; destinations that are not declared share equally what is left")
    # shape, axis, the sizes that are declared (None: left to share)
    cases = [((6,), 0, [None, None]), ((6,), 0, [1, None, 3]), ((4, 6), 1, [None, None, None]), ((4, 6), -1, [2, 4]),
             ((3, 2), 0, [0, 3]), ((2, 5, 3), 1, [1, None, None]), ((0, 3), 0, [None, None]), ((7,), 0, [None]),
             ((2, 3, 1, 2, 4), 4, [None, 3]), ((33, 2), 0, [31, 2]), ((2, 3), 1, [None, 0])]
    for i, (shape, axis, sizes) in enumerate(cases + [((2, 5), 1, [2, None])] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, shape, dtype)
        x = g.input(values, dtype)
        known = sum(size for size in sizes if size is not None)
        rest = [size for size in sizes if size is None]
        each = (shape[axis] - known) // len(rest) if rest else 0
        real = [each if size is None else size for size in sizes]
        names = []
        for size, count in zip(sizes, real):
            name = g.fresh("y")
            if size is not None:
                part = list(shape)
                part[axis] = count
                g.lines.append(f".local {name} {dtype}{shape_text(part)}")
            names.append(name)
        g.add(f"SPLIT {', '.join(names)}, {x}" + (f", axis={axis}" if axis else ""))
        for name, part in zip(names, np.split(values, np.cumsum(real)[:-1], axis)):
            g.expect(name, part, dtype)
    g.write()


# shape, low, high
PADS = [((3,), [1], [2]), ((3,), [], [2]), ((4, 3), [1], []), ((4, 3), [2, 1], [3, 2]), ((2, 3, 4), [1, 0, 2], [1, 2, 3]),
        ((5, 2), [0, 1], [4, 1]), ((3, 1), [2], [1]), ((2, 2, 3, 2, 2), [0, 0, 2, 1], [1]), ((4,), [], []),
        ((33, 3), [31], [32])]
MODES = {"constant": "constant", "reflect": "reflect", "circular": "wrap"}


def widths(shape, low, high):
    return [(low[a] if a < len(low) else 0, high[a] if a < len(high) else 0) for a in range(len(shape))]


def pad_text(low, high, mode):
    text = (f", low={shape_text(low)}" if low else "") + (f", high={shape_text(high)}" if high else "")
    return text + ("" if mode == "constant" else f", mode={mode}")


def padded(values, low, high, mode, value=0):
    if values.ndim == 0:
        return values
    extra = {"constant_values": value} if mode == "constant" else {}
    return np.pad(values, widths(values.shape, low, high), MODES[mode], **extra)


def fits(shape, low, high, mode):
    """reflect needs fewer than the axis has, circular at most that."""
    limit = [dim - 1 if mode == "reflect" else dim for dim in shape]
    return mode == "constant" or all(max(w) <= n for w, n in zip(widths(shape, low, high), limit))


def pad():
    g = Golden("pad", "pad: value= around src, its mirror image without the edge, or its other end")
    cases = [(case, mode) for mode in MODES for case in PADS if fits(*case, mode)]
    cases += [(((), [], []), "constant"), (((0, 2), [1], [1]), "constant"), (((1, 2), [1], [1]), "circular")]
    cases += [(((2, 3), [1, 1], [0, 2]), mode) for mode in MODES for _ in ALL if mode != "reflect"]
    for i, ((shape, low, high), mode) in enumerate(cases):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, shape, dtype)
        x, y = g.input(values, dtype), g.fresh("y")
        value = cast(np.array([0, 1, 3][i % 3]), dtype) if mode == "constant" else 0
        text = f", value={literal(value, dtype)}" if mode == "constant" and i % 3 else ""
        g.add(f"PAD {y}, {x}{pad_text(low, high, mode)}{text}")
        g.expect(y, padded(values, low, high, mode, value), dtype)
    x, y = g.input(np.array([1, 2]), "f32"), g.fresh("y")
    g.add(f"PAD {y}, {x}, low=[1], high=[1], value=-inf")
    g.expect(y, np.array([-np.inf, 1, 2, -np.inf]), "f32")
    g.write()


def pad_grad():
    g = Golden("pad_grad", "pad_grad: what PAD filled from an element is summed back to it; acc=1 adds it to dst")
    cases = [(case, mode) for mode in MODES for case in PADS if fits(*case, mode)]
    cases += [(((0, 2), [1], [1]), "constant"), (((1, 2), [1], [1]), "circular")]
    cases += [(((3, 3), [1, 1], [2, 2]), mode) for mode in MODES for _ in FLOATS]
    for i, ((shape, low, high), mode) in enumerate(cases):
        dtype = FLOATS[i % len(FLOATS)]
        # Where each padded element came from, and -1 for the constant.
        origin = padded(np.arange(int(np.prod(shape))).reshape(shape), low, high, mode, -1)
        grad = sample(rng, origin.shape, dtype)
        total = np.zeros(int(np.prod(shape)))
        inside = origin >= 0
        np.add.at(total, origin[inside], grad[inside].astype(np.float64))  # eighths: exact in f32
        total = total.reshape(shape)
        x, y = g.input(grad, dtype), g.fresh("y")
        text = pad_text(low, high, mode)
        g.add(f"PAD_GRAD {y}, {x}{text}, shape={shape_text(shape)}")
        g.expect(y, cast(total, dtype), dtype)
        before = sample(rng, shape, dtype)
        dst = g.declare("state", before, dtype, g.fresh("total"))
        g.add(f"PAD_GRAD {dst}, {x}{text}, acc=1")
        g.expect(dst, cast(before.astype(np.float64) + total, dtype), dtype)
    g.write()


def flip():
    g = Golden("flip", "flip: the order along axes= (all when not given) reversed")
    cases = [((5,), None), ((), None), ((2, 3), None), ((2, 3), [0]), ((2, 3), [-1]), ((2, 3, 4), [0, 2]), ((2, 3, 4), [1]),
             ((0, 3), None), ((1, 4), [0]), ((2, 1, 3, 2), [3, 0]), ((2, 3, 1, 2, 3), None), ((33, 2), [0])]
    for i, (shape, axes) in enumerate(cases + [((3, 2), [0])] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, shape, dtype)
        x, y = g.input(values, dtype), g.fresh("y")
        g.add(f"FLIP {y}, {x}" + (f", axes={shape_text(axes)}" if axes else ""))
        g.expect(y, np.flip(values, axes), dtype)
    g.write()


# shape of the whole, of the part, starts
PLACES = [((7,), (3,), [2]), ((7,), (7,), [0]), ((4, 5), (2, 5), [1]), ((4, 5), (2, 3), [2, 1]), ((4, 5), (4, 2), [0, 3]),
          ((3, 4, 5), (1, 4, 2), [2]), ((3, 4, 5), (2, 2, 2), [1, 2, 3]), ((3, 2), (0, 2), [3]), ((0, 2), (0, 2), [0]),
          ((2, 3, 2, 2, 3), (1, 3, 1, 2, 2), [1, 0, 1]), ((33,), (31,), [2]), ((1, 1), (1, 1), [0, 0])]


def where(part, starts):
    starts = starts + [0] * (len(part) - len(starts))
    return tuple(slice(a, a + n) for a, n in zip(starts, part))


def starts_of(g, starts, i):
    return ", ".join(g.input(np.array(at), ("i32", "i64")[(i + k) % 2]) for k, at in enumerate(starts))


def dynamic_slice():
    g = Golden("dynamic_slice", "dynamic_slice: the part of src of the shape of dst that begins at start")
    for i, (shape, part, starts) in enumerate(PLACES + [((4, 3), (2, 2), [1, 1])] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, shape, dtype)
        x, at, y = g.input(values, dtype), starts_of(g, starts, i), g.fresh("y")
        g.add(f"DYNAMIC_SLICE {y}, {x}, {at}, shape={shape_text(part)}")
        g.expect(y, values[where(part, starts)], dtype)
    g.write()


def dynamic_update_slice():
    g = Golden("dynamic_update_slice", "dynamic_update_slice: the part of dst that begins at start is replaced")
    for i, (shape, part, starts) in enumerate(PLACES + [((4, 3), (2, 2), [1, 1])] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        before, values = sample(rng, shape, dtype), sample(rng, part, dtype)
        dst, x = g.declare("state", before, dtype, g.fresh("dst")), g.input(values, dtype)
        g.add(f"DYNAMIC_UPDATE_SLICE {dst}, {x}, {starts_of(g, starts, i)}")
        after = before.copy()
        after[where(part, starts)] = values
        g.expect(dst, after, dtype)
    g.write()


def dynamic_slice_grad():
    g = Golden("dynamic_slice_grad", "dynamic_slice_grad: zeros outside the part that begins at start; acc=1 adds to dst")
    for i, (shape, part, starts) in enumerate(PLACES + [((4, 3), (2, 2), [1, 1])] * len(FLOATS)):
        dtype = FLOATS[i % len(FLOATS)]
        grad = sample(rng, part, dtype)
        x, at, y = g.input(grad, dtype), starts_of(g, starts, i), g.fresh("y")
        g.add(f"DYNAMIC_SLICE_GRAD {y}, {x}, {at}, shape={shape_text(shape)}")
        whole = np.zeros(shape)
        whole[where(part, starts)] = grad
        g.expect(y, whole, dtype)
        before = sample(rng, shape, dtype)
        total = g.declare("state", before, dtype, g.fresh("total"))
        g.add(f"DYNAMIC_SLICE_GRAD {total}, {x}, {at}, acc=1")
        g.expect(total, cast(before.astype(np.float64) + whole, dtype), dtype)
    g.write()


def triangle():
    g = Golden("triangle", "triangle: src below (keep=lower) or above a diagonal, value= on the other side")
    cases = [((3, 3), 0), ((3, 4), 1), ((4, 3), -1), ((2, 3, 3), 0), ((3, 3), 5), ((3, 3), -5), ((0, 3), 0), ((3, 0), 1),
             ((1, 1), 0), ((2, 1, 2, 3), 2), ((33, 31), -2)]
    for i, (shape, diagonal) in enumerate(cases + [((2, 3), 0)] * len(ALL)):
        dtype = ALL[i % len(ALL)]
        values = sample(rng, shape, dtype)
        x = g.input(values, dtype)
        value = cast(np.array(i % 2), dtype)
        column_less_row = np.arange(shape[-1]) - np.arange(shape[-2])[:, None]
        for keep, mask in (("lower", column_less_row <= diagonal), ("upper", column_less_row >= diagonal)):
            y = g.fresh("y")
            text = (f", diagonal={diagonal}" if diagonal else "") + (", value=1" if i % 2 else "")
            g.add(f"TRIANGLE {y}, {x}{text}" + (", keep=upper" if keep == "upper" else ""))
            g.expect(y, np.where(mask, values, value), dtype)
    x, y = g.input(np.array([[1, np.nan], [3, 4]]), "f32"), g.fresh("y")
    g.add(f"TRIANGLE {y}, {x}, diagonal=-9223372036854775807, value=-inf")
    g.expect(y, np.full(4, -np.inf), "f32")
    y = g.fresh("y")
    g.add(f"TRIANGLE {y}, {x}, diagonal=9223372036854775807, value=-inf")
    g.expect(y, np.array([1, np.nan, 3, 4]), "f32")
    g.write()


def faults():
    g = Golden("dynamic_slice-fault", "dynamic_slice: a part that begins too late to lie inside src is a fault")
    g.input(np.arange(12).reshape(4, 3), "f32", "x")
    g.input(np.array(1), "i32", "i")
    g.input(np.array(2), "i64", "j")
    g.declare("state", np.array([[5, 6]]), "f32", "dst")
    g.add("DYNAMIC_SLICE dst, x, i, j")
    g.expect_fault("DYNAMIC_SLICE", "start 2 at j of axis 1 is outside [0,1]")
    g.expect("dst", np.array([5, 6]), "f32")
    g.write()

    g = Golden("dynamic_update_slice-fault", "dynamic_update_slice: a negative start does not count from the end")
    g.input(np.array([8, 9]), "i32", "x")
    g.input(np.array(-1), "i64", "at")
    g.declare("state", np.array([1, 2, 3, 4]), "i32", "dst")
    g.add("DYNAMIC_UPDATE_SLICE dst, x, at")
    g.expect_fault("DYNAMIC_UPDATE_SLICE", "start -1 at at of axis 0 is outside [0,2]")
    g.expect("dst", np.array([1, 2, 3, 4]), "i32")
    g.write()


for write in (split, pad, pad_grad, flip, dynamic_slice, dynamic_update_slice, dynamic_slice_grad, triangle, faults):
    write()
