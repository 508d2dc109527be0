// Every shape rule met and broken. Shapes and messages are written out; those of NumPy's rules are NumPy's.
#include <gtest/gtest.h>

#include "tests/opcodes/infer_case.h"

namespace tape {
namespace {

using enum DType;
using enum Opcode;

TEST(InferShapes, Same) {
  EXPECT_EQ(InferCase(Tanh).with({unknown("y"), f32("x", {2, 0, 3})}).run(), "y f32 [2,0,3]");
  EXPECT_EQ(InferCase(Tanh).with({f32("y", {3}), f32("x", {2})}).run(), "TANH: y is [3], wants [2] as x");
  EXPECT_EQ(InferCase(DropoutGrad).with({unknown("d"), of(Bool, "m", {3}), f32("g", {4})}).run(),
            "DROPOUT_GRAD: shapes differ: m [3], g [4]");
}

TEST(InferShapes, Broadcast) {
  const auto add = [](Shape a, Shape b) { return InferCase(Add).with({unknown("c"), f32("a", a), f32("b", b)}).run(); };
  EXPECT_EQ(add({2, 3}, {3}), "c f32 [2,3]");
  EXPECT_EQ(add({2, 1}, {1, 3}), "c f32 [2,3]");
  EXPECT_EQ(add({}, {4, 0}), "c f32 [4,0]");
  EXPECT_EQ(add({1}, {0}), "c f32 [0]");
  EXPECT_EQ(add({2, 3}, {2}), "ADD: shapes do not broadcast: a [2,3], b [2]");
  EXPECT_EQ(add({0}, {2}), "ADD: shapes do not broadcast: a [0], b [2]");
  EXPECT_EQ(InferCase(Add).with({f32("c", {2}), f32("a", {2, 1}), f32("b", {3})}).run(),
            "ADD: c is [2], wants [2,3] from a [2,1], b [3]");
  EXPECT_EQ(InferCase(Where).with({unknown("c"), of(Bool, "m", {2, 1}), f32("a", {3}), f32("b", {})}).run(),
            "c f32 [2,3]");
  EXPECT_EQ(InferCase(Where).with({unknown("c"), of(Bool, "m", {2}), f32("a", {3}), f32("b", {})}).run(),
            "WHERE: shapes do not broadcast: m [2], a [3], b []");
}

TEST(InferShapes, BroadcastProductIsChecked) {
  const int64_t big = int64_t{1} << 40;
  EXPECT_EQ(InferCase(Add).with({unknown("c"), f32("a", {big, 1}), f32("b", {1, big})}).run(),
            "ADD: c would have the shape [1099511627776,1099511627776], more than 70368744177664 elements");
}

TEST(InferShapes, FreeScalarAndClose) {
  EXPECT_EQ(InferCase(Iota).with({of(I32, "x", {2, 3})}).set("axis", -2).run(), "x i32 [2,3]");
  EXPECT_EQ(InferCase(Iota).with({of(I32, "x", {2, 3})}).set("axis", 2).run(),
            "IOTA: axis=2 is out of range for x [2,3]");
  EXPECT_EQ(InferCase(Iota).with({of(I32, "x", {})}).run(), "IOTA: axis=0 is out of range for x []");
  EXPECT_EQ(InferCase(Advance).with({of(I64, "t", {})}).run(), "ok");
  EXPECT_EQ(InferCase(Advance).with({of(I64, "t", {1})}).run(), "ADVANCE: t is [1], wants []");
  EXPECT_EQ(InferCase(AssertEqual).with({f32("a", {2}), f32("b", {2})}).run(), "ok");
  EXPECT_EQ(InferCase(AssertClose).with({f32("a", {2}), f32("b", {1})}).run(),
            "ASSERT_CLOSE: shapes differ: a [2], b [1]");
}

TEST(InferShapes, Loops) {
  EXPECT_EQ(InferCase(Repeat).absent().set("count", 3).run(), "ok");
  EXPECT_EQ(InferCase(Repeat).absent().run(), "ok");
  EXPECT_EQ(InferCase(Repeat).absent().set("count", -1).run(), "REPEAT: count=-1 is out of range [0, 1099511627776]");
  EXPECT_EQ(InferCase(Repeat).absent().set("count", 3).set("max", 4).run(),
            "REPEAT: max= belongs to a count that is a tensor");
  EXPECT_EQ(InferCase(Repeat).with({of(I32, "n", {})}).set("max", 4).run(), "ok");
  EXPECT_EQ(InferCase(Repeat).with({of(I32, "n", {})}).run(),
            "REPEAT: the count n is a tensor and needs max=, at least 1");
  EXPECT_EQ(InferCase(Repeat).with({of(I32, "n", {})}).set("max", 4).set("count", 2).run(),
            "REPEAT: has a constant count and the tensor n");
  EXPECT_EQ(InferCase(Repeat).with({of(I32, "n", {1})}).set("max", 4).run(), "REPEAT: n is [1], wants []");
  EXPECT_EQ(InferCase(Repeat).with({f32("n", {})}).set("max", 4).run(), "REPEAT: n is f32, wants i64 i32");
  EXPECT_EQ(InferCase(While).with({of(Bool, "go", {})}).set("max", 4).run(), "ok");
  EXPECT_EQ(InferCase(While).with({of(Bool, "go", {2})}).set("max", 4).run(), "WHILE: go is [2], wants []");
  EXPECT_EQ(InferCase(While).with({of(Bool, "go", {})}).run(), "WHILE: max= is missing");
}

TEST(InferShapes, LoadAndStore) {
  const std::vector<ColumnType> columns{{U8, {64}}, {I32, {}}};
  const auto load = [&](std::vector<Operands> dst) {
    return InferCase(Load).list(dst).thing().absent().set("rows", 5).columns(columns).run();
  };
  EXPECT_EQ(load({unknown("x"), unknown("y")}), "x u8 [5,64], y i32 [5]");
  EXPECT_EQ(load({unknown("x")}), "LOAD: 1 destinations, but the stream has 2 columns");
  EXPECT_EQ(load({unknown("x"), unknown("y"), unknown("z")}), "LOAD: 3 destinations, but the stream has 2 columns");
  EXPECT_EQ(load({of(U8, "x", {6, 64}), unknown("y")}), "LOAD: x is [6,64], wants [5,64] (column 0, rows=5)");
  EXPECT_EQ(load({f32("x", {5, 64}), unknown("y")}), "LOAD: x is f32, wants u8");
  EXPECT_EQ(InferCase(Load)
                .list({unknown("x"), unknown("y")})
                .thing()
                .with({unknown("n")})
                .set("rows", 5)
                .columns(columns)
                .run(),
            "x u8 [5,64], y i32 [5], n i64 []");
  const auto store = [&](Operands src, Shape row) {
    return InferCase(Store).thing().with({std::move(src)}).columns({{F32, row}}).run();
  };
  EXPECT_EQ(store(f32("x", {3}), {3}), "ok");
  EXPECT_EQ(store(f32("x", {2, 3}), {3}), "ok");
  EXPECT_EQ(store(f32("x", {7}), {}), "ok");
  EXPECT_EQ(store(f32("x", {1, 2, 3}), {3}), "STORE: x [1,2,3] is neither one row [3] of the sink nor several");
  EXPECT_EQ(store(f32("x", {3, 2}), {3}), "STORE: x [3,2] is neither one row [3] of the sink nor several");
  EXPECT_EQ(store(f32("x", {}), {3}), "STORE: x [] is neither one row [3] of the sink nor several");
  EXPECT_EQ(store(of(I32, "x", {3}), {3}), "STORE: x is i32, wants f32");
}

TEST(InferShapes, ReshapeTransposeBroadcastTo) {
  EXPECT_EQ(InferCase(Reshape).with({shaped("y", {3, 2}), f32("x", {6})}).run(), "y f32 [3,2]");
  EXPECT_EQ(InferCase(Reshape).with({shaped("y", {4}), f32("x", {6})}).run(),
            "RESHAPE: sizes differ: y [4] has 4 elements, x [6] has 6");
  EXPECT_EQ(InferCase(Reshape).with({unknown("y"), f32("x", {6})}).run(),
            "RESHAPE: y has no shape: add shape= or declare it");
  const auto transpose = [](std::vector<int64_t> perm) {
    InferCase c(Transpose);
    c.with({unknown("y"), f32("x", {2, 3, 4})});
    if (!perm.empty()) c.ints("perm", perm);
    return c.run();
  };
  EXPECT_EQ(transpose({}), "y f32 [4,3,2]");
  EXPECT_EQ(transpose({1, 2, 0}), "y f32 [3,4,2]");
  EXPECT_EQ(transpose({0, 0, 1}), "TRANSPOSE: perm=[0, 0, 1] is not a permutation of the axes of x [2,3,4]");
  EXPECT_EQ(transpose({0, 1}), "TRANSPOSE: perm=[0, 1] is not a permutation of the axes of x [2,3,4]");
  EXPECT_EQ(transpose({0, 1, 3}), "TRANSPOSE: perm=[0, 1, 3] is not a permutation of the axes of x [2,3,4]");
  EXPECT_EQ(transpose({0, 1, -1}), "TRANSPOSE: perm=[0, 1, -1] is not a permutation of the axes of x [2,3,4]");
  EXPECT_EQ(InferCase(Transpose).with({unknown("y"), f32("x", {})}).run(), "y f32 []");
  EXPECT_EQ(InferCase(Transpose).with({unknown("y"), f32("x", {})}).ints("perm", {0}).run(),
            "TRANSPOSE: perm=[0] is not a permutation of the axes of x []");
  EXPECT_EQ(InferCase(Broadcast).with({shaped("y", {4, 3}), f32("x", {3})}).run(), "y f32 [4,3]");
  EXPECT_EQ(InferCase(Broadcast).with({shaped("y", {3}), f32("x", {4, 3})}).run(),
            "BROADCAST: x [4,3] does not broadcast to y [3]");
  EXPECT_EQ(InferCase(Broadcast).with({shaped("y", {1}), f32("x", {4})}).run(),
            "BROADCAST: x [4] does not broadcast to y [1]");
}

TEST(InferShapes, Concat) {
  const auto concat = [](std::vector<Operands> sources, int64_t axis) {
    return InferCase(Concat).with({unknown("y")}).list(sources).set("axis", axis).run();
  };
  EXPECT_EQ(concat({f32("a", {2, 3}), f32("b", {0, 3}), f32("c", {4, 3})}, 0), "y f32 [6,3]");
  EXPECT_EQ(concat({f32("a", {2, 3}), f32("b", {2, 1})}, -1), "y f32 [2,4]");
  EXPECT_EQ(concat({f32("a", {2, 3})}, 1), "y f32 [2,3]");
  EXPECT_EQ(concat({f32("a", {2, 3}), f32("b", {3, 3})}, 1), "CONCAT: sources differ outside axis 1: a [2,3], b [3,3]");
  EXPECT_EQ(concat({f32("a", {2, 3}), f32("b", {3})}, 0), "CONCAT: sources differ outside axis 0: a [2,3], b [3]");
  EXPECT_EQ(concat({f32("a", {2, 3})}, 2), "CONCAT: axis=2 is out of range for a [2,3]");
  EXPECT_EQ(concat({f32("a", {})}, 0), "CONCAT: axis=0 is out of range for a []");
  EXPECT_EQ(concat({f32("a", {1}), of(I32, "b", {1})}, 0), "CONCAT: dtypes differ: a f32, b i32");
}

TEST(InferShapes, Slice) {
  const auto slice = [](std::vector<int64_t> start, std::vector<int64_t> stop, std::vector<int64_t> step) {
    InferCase c(Slice);
    c.with({unknown("y"), f32("x", {10, 4})}).ints("start", start).ints("stop", stop);
    if (!step.empty()) c.ints("step", step);
    return c.run();
  };
  EXPECT_EQ(slice({2}, {8}, {}), "y f32 [6,4]");
  EXPECT_EQ(slice({1, 0}, {10, 4}, {3, 2}), "y f32 [3,2]");
  EXPECT_EQ(slice({-3}, {-1}, {}), "y f32 [2,4]");
  EXPECT_EQ(slice({10}, {10}, {}), "y f32 [0,4]");
  EXPECT_EQ(slice({0}, {11}, {}), "SLICE: start=0 stop=11 is out of range for axis 0 of x [10,4]");
  EXPECT_EQ(slice({-11}, {5}, {}), "SLICE: start=-11 stop=5 is out of range for axis 0 of x [10,4]");
  EXPECT_EQ(slice({5}, {4}, {}), "SLICE: start=5 stop=4 is out of range for axis 0 of x [10,4]");
  EXPECT_EQ(slice({0}, {5}, {0}), "SLICE: step=0 of axis 0 is not positive");
  EXPECT_EQ(slice({0}, {5}, {-1}), "SLICE: step=-1 of axis 0 is not positive");
  EXPECT_EQ(slice({0, 0}, {5}, {}), "SLICE: start=, stop= and step= differ in length: 2, 1, 0");
  EXPECT_EQ(slice({0, 0, 0}, {1, 1, 1}, {}), "SLICE: 3 slices, but x [10,4] has 2 axes");
  const auto grad = [](Shape g) {
    return InferCase(SliceGrad).with({f32("d", {10, 4}), f32("g", g)}).ints("start", {2}).ints("stop", {8}).run();
  };
  EXPECT_EQ(grad({6, 4}), "d f32 [10,4]");
  EXPECT_EQ(grad({6, 3}), "SLICE_GRAD: g is [6,3], wants [6,4] as the slice of d [10,4]");
}

TEST(InferShapes, SliceRangesOfKernels) {
  Command command = make_command(op_info(Slice));
  set_list(command, "start", {1, -2});
  set_list(command, "stop", {8, 5});
  set_list(command, "step", {3, 1});
  const auto first = slice_range(command, 0, 10), second = slice_range(command, 1, 5),
             third = slice_range(command, 2, 7);
  ASSERT_TRUE(first && second && third);
  EXPECT_EQ(first->start, 1);
  EXPECT_EQ(first->count, 3);  // 1, 4, 7
  EXPECT_EQ(second->start, 3);
  EXPECT_EQ(second->count, 2);
  EXPECT_EQ(third->count, 7);
  EXPECT_FALSE(slice_range(command, 0, 7));
}

TEST(InferShapes, GatherScatterOneHot) {
  const auto gather = [](Shape x, Shape i, int64_t axis) {
    return InferCase(Gather).with({unknown("y"), f32("x", x), of(I32, "i", i)}).set("axis", axis).run();
  };
  EXPECT_EQ(gather({5, 3}, {2, 2}, 0), "y f32 [2,2,3]");
  EXPECT_EQ(gather({5, 3}, {}, 1), "y f32 [5]");
  EXPECT_EQ(gather({5, 3}, {4}, -1), "y f32 [5,4]");
  EXPECT_EQ(gather({5, 3}, {4}, 2), "GATHER: axis=2 is out of range for x [5,3]");
  EXPECT_EQ(gather({1, 1, 1, 1, 1}, {1, 1, 1, 1, 1}, 0),
            "GATHER: x [1,1,1,1,1] taken at i [1,1,1,1,1] has more than 8 axes");
  const auto scatter = [](Shape src) {
    return InferCase(ScatterAdd).with({f32("d", {5, 3}), of(I64, "i", {2}), f32("x", src)}).run();
  };
  EXPECT_EQ(scatter({2, 3}), "ok");
  EXPECT_EQ(scatter({3, 2}), "SCATTER_ADD: x is [3,2], wants [2,3] as d [5,3] at i [2]");
  EXPECT_EQ(InferCase(OneHot).with({f32("h", {4, 10}), of(I32, "i", {4})}).run(), "h f32 [4,10]");
  EXPECT_EQ(InferCase(OneHot).with({f32("h", {4}), of(I32, "i", {4})}).run(),
            "ONE_HOT: h [4] is not i [4] and a last axis, the depth");
  EXPECT_EQ(InferCase(OneHot).with({hinted(F32, "h"), of(I32, "i", {4})}).run(),
            "ONE_HOT: h has no shape: add shape= or declare it");
}

TEST(InferShapes, Reductions) {
  const auto sum = [](Opcode op, Shape x, std::vector<int64_t> axes, bool keep) {
    InferCase c(op);
    c.with({unknown("s"), f32("x", x)});
    if (!axes.empty()) c.ints("axes", axes);
    if (keep) c.set("keepdims", 1);
    return c.run();
  };
  EXPECT_EQ(sum(Sum, {2, 3, 4}, {}, false), "s f32 []");
  EXPECT_EQ(sum(Sum, {2, 3, 4}, {}, true), "s f32 [1,1,1]");
  EXPECT_EQ(sum(Sum, {2, 3, 4}, {0, 2}, false), "s f32 [3]");
  EXPECT_EQ(sum(Sum, {2, 3, 4}, {-1}, true), "s f32 [2,3,1]");
  EXPECT_EQ(sum(Sum, {}, {}, false), "s f32 []");
  EXPECT_EQ(sum(Sum, {2, 3}, {2}, false), "SUM: axes= names axis 2, out of range for x [2,3]");
  EXPECT_EQ(sum(Sum, {2, 3}, {1, -1}, false), "SUM: axes= names axis 1 twice");
  EXPECT_EQ(sum(Sum, {0, 3}, {0}, false), "s f32 [3]");
  for (const auto& [op, text] :
       {std::pair{Mean, "MEAN"}, {Var, "VAR"}, {ReduceMax, "REDUCE_MAX"}, {ReduceMin, "REDUCE_MIN"}}) {
    EXPECT_EQ(sum(op, {0, 3}, {0}, false), std::string(text) + ": reduces over nothing: x [0,3]");
    EXPECT_EQ(sum(op, {0, 3}, {1}, false), "s f32 [0]");
  }
  for (const Opcode op : {Prod, LogSumExp, Norm2}) EXPECT_EQ(sum(op, {0}, {}, false), "s f32 []");
  EXPECT_EQ(InferCase(All).with({unknown("s"), of(Bool, "m", {0})}).run(), "s bool []");
  EXPECT_EQ(InferCase(ArgMin).with({unknown("i"), f32("x", {3, 0})}).set("axis", 1).run(),
            "ARGMIN: reduces over nothing: x [3,0]");
  EXPECT_EQ(InferCase(ArgMax).with({unknown("i"), f32("x", {3, 4})}).set("axis", 1).set("keepdims", 1).run(),
            "i i32 [3,1]");
  EXPECT_EQ(InferCase(ArgMax).with({unknown("i"), f32("x", {})}).run(), "ARGMAX: axis=0 is out of range for x []");
}

TEST(InferShapes, ReductionGradients) {
  const auto grad = [](Shape g) {
    return InferCase(ReduceMaxGrad).with({unknown("d"), f32("x", {2, 3}), f32("g", g)}).ints("axes", {1}).run();
  };
  EXPECT_EQ(grad({2}), "d f32 [2,3]");
  EXPECT_EQ(grad({2, 1}), "REDUCE_MAX_GRAD: g is [2,1], wants [2] from x [2,3]");
}

TEST(InferShapes, MatMulAsNumPy) {
  const auto matmul = [](Shape a, Shape b) {
    return InferCase(MatMul).with({unknown("c"), f32("a", a), f32("b", b)}).run();
  };
  EXPECT_EQ(matmul({2, 3}, {3, 4}), "c f32 [2,4]");
  EXPECT_EQ(matmul({3}, {3, 4}), "c f32 [4]");
  EXPECT_EQ(matmul({2, 3}, {3}), "c f32 [2]");
  EXPECT_EQ(matmul({3}, {3}), "c f32 []");
  EXPECT_EQ(matmul({5, 1, 2, 3}, {7, 3, 4}), "c f32 [5,7,2,4]");
  EXPECT_EQ(matmul({2, 0}, {0, 4}), "c f32 [2,4]");
  EXPECT_EQ(matmul({2, 3}, {2, 4}), "MATMUL: inner sizes differ: a [2,3], b [2,4]");
  EXPECT_EQ(matmul({5, 2, 3}, {7, 3, 4}), "MATMUL: batch axes do not broadcast: a [5,2,3], b [7,3,4]");
  EXPECT_EQ(matmul({}, {3}), "MATMUL: a is a scalar, wants rank 1 or more");
  EXPECT_EQ(InferCase(MatMul).with({f32("c", {4, 2}), f32("a", {2, 3}), f32("b", {3, 4})}).run(),
            "MATMUL: c is [4,2], wants [2,4] from a [2,3], b [3,4]");
}

TEST(InferShapes, MatMulAttributes) {
  const auto matmul = [](Operands a, Operands b, std::string_view attr, int64_t value) {
    return InferCase(MatMul).with({unknown("c"), std::move(a), std::move(b)}).set(attr, value).run();
  };
  EXPECT_EQ(matmul(f32("a", {3, 2}), f32("b", {3, 4}), "trans_a", 1), "c f32 [2,4]");
  EXPECT_EQ(matmul(f32("a", {2, 3}), f32("b", {4, 3}), "trans_b", 1), "c f32 [2,4]");
  EXPECT_EQ(matmul(f32("a", {3}), f32("b", {3, 4}), "trans_a", 1), "MATMUL: trans_a=1 needs rank 2 or more, a [3]");
  EXPECT_EQ(matmul(of(F64, "a", {1, 1}), of(F64, "b", {1, 1}), "math", 1), "MATMUL: math= needs f32, a f64");
  EXPECT_EQ(InferCase(MatMul).with({unknown("c"), of(I32, "a", {1}), of(I32, "b", {1})}).number("alpha", 2).run(),
            "MATMUL: alpha= needs floats, a i32");
}

TEST(InferShapes, SoftmaxAndLosses) {
  EXPECT_EQ(InferCase(Softmax).with({unknown("y"), f32("x", {2, 3})}).set("axis", 0).run(), "y f32 [2,3]");
  EXPECT_EQ(InferCase(Softmax).with({unknown("y"), f32("x", {2, 3})}).set("axis", -3).run(),
            "SOFTMAX: axis=-3 is out of range for x [2,3]");
  EXPECT_EQ(InferCase(LogSoftmax).with({unknown("y"), f32("x", {})}).run(),
            "LOG_SOFTMAX: axis=-1 is out of range for x []");
  EXPECT_EQ(InferCase(SoftmaxGrad).with({unknown("d"), f32("y", {2}), f32("g", {3})}).run(),
            "SOFTMAX_GRAD: shapes differ: y [2], g [3]");
  const auto entropy = [](Shape labels, int64_t reduction) {
    return InferCase(CrossEntropy)
        .with({unknown("l"), f32("z", {4, 10}), of(I32, "t", labels)})
        .absent()
        .set("reduction", reduction)
        .run();
  };
  EXPECT_EQ(entropy({4}, 1), "l f32 []");
  EXPECT_EQ(entropy({4}, 2), "l f32 [4]");
  EXPECT_EQ(entropy({10}, 1), "CROSS_ENTROPY: labels are not logits without the last axis: z [4,10], t [10]");
  EXPECT_EQ(entropy({4, 10}, 1), "CROSS_ENTROPY: labels are not logits without the last axis: z [4,10], t [4,10]");
  EXPECT_EQ(InferCase(CrossEntropyGrad).with({unknown("d"), f32("z", {4, 10}), of(I32, "t", {4}), f32("g", {})}).run(),
            "d f32 [4,10]");
  EXPECT_EQ(InferCase(CrossEntropyGrad).with({unknown("d"), f32("z", {4, 10}), of(I32, "t", {4}), f32("g", {4})}).run(),
            "CROSS_ENTROPY_GRAD: g is [4], wants [] with reduction=mean");
  EXPECT_EQ(InferCase(MseLoss).with({unknown("l"), f32("a", {2, 3}), f32("b", {2, 3})}).set("reduction", 2).run(),
            "l f32 [2,3]");
  EXPECT_EQ(InferCase(MseLoss).with({unknown("l"), f32("a", {2, 3}), f32("b", {3})}).run(),
            "MSE_LOSS: shapes differ: a [2,3], b [3]");
  EXPECT_EQ(InferCase(MseLossGrad).with({unknown("d"), f32("a", {2}), f32("b", {2}), f32("g", {2})}).run(),
            "MSE_LOSS_GRAD: g is [2], wants [] with reduction=mean");
}

TEST(InferShapes, Random) {
  EXPECT_EQ(InferCase(RandomNormal).with({f32("x", {3}), of(I64, "g", {2})}).run(), "x f32 [3]");
  EXPECT_EQ(InferCase(RandomNormal).with({f32("x", {3}), of(I64, "g", {3})}).run(),
            "RANDOM_NORMAL: g [3] is no generator: wants i64 [2]");
  EXPECT_EQ(InferCase(RandomNormal).with({f32("x", {3}), of(I32, "g", {2})}).run(),
            "RANDOM_NORMAL: g is i32, wants i64");
  EXPECT_EQ(InferCase(Dropout).with({unknown("y"), of(Bool, "m", {3}), f32("x", {4}), of(I64, "g", {2})}).run(),
            "DROPOUT: m is [3], wants [4] as x");
}

/// ADAM over one f32 parameter w [2], with one list replaced.
std::string adam(std::vector<Operands> grads, std::vector<Operands> m, Operands lr, Operands step) {
  return InferCase(Adam)
      .list({f32("w", {2})})
      .list(grads)
      .list(m)
      .list({f32("v", {2})})
      .with({std::move(lr), std::move(step)})
      .list({})
      .run();
}

TEST(InferShapes, Optimizers) {
  const Operands lr = f32("lr", {}), step = of(I64, "t", {}), g = f32("g", {2}), m = f32("m", {2});
  EXPECT_EQ(adam({g}, {m}, lr, step), "ok");
  EXPECT_EQ(adam({g, g}, {m}, lr, step), "ADAM: lists differ in length: params has 1, grads has 2");
  EXPECT_EQ(adam({g}, {}, lr, step), "ADAM: lists differ in length: params has 1, m has 0");
  EXPECT_EQ(adam({f32("g", {3})}, {m}, lr, step), "ADAM: g is [3], wants [2] as w");
  EXPECT_EQ(adam({of(F16, "g", {2})}, {m}, lr, step), "ADAM: g is f16, wants f32");
  EXPECT_EQ(adam({g}, {of(F64, "m", {2})}, lr, step), "ADAM: m is f64, wants f32");
  EXPECT_EQ(adam({g}, {m}, f32("lr", {1}), step), "ADAM: lr is [1], wants []");
  EXPECT_EQ(adam({g}, {m}, lr, of(I32, "t", {})), "ADAM: t is i32, wants i64");
  EXPECT_EQ(adam({g}, {m}, of(I32, "lr", {}), step), "ADAM: lr is i32, wants f64 f32 f16 bf16");
}

TEST(InferShapes, HalfParametersTakeF32GradientsAndState) {
  const auto sgd = [](DType grad, DType master) {
    return InferCase(Sgd)
        .list({of(BF16, "w", {2})})
        .list({of(grad, "g", {2})})
        .list({})
        .with({f32("lr", {}), of(I64, "t", {})})
        .list({of(master, "w32", {2})})
        .run();
  };
  EXPECT_EQ(sgd(BF16, F32), "ok");
  EXPECT_EQ(sgd(F32, F32), "ok");
  EXPECT_EQ(sgd(F16, F32), "SGD: g is f16, wants f32 bf16");
  EXPECT_EQ(sgd(F32, BF16), "SGD: w32 is bf16, wants f32");
}

TEST(InferShapes, SgdKeepsStateOnlyWithMomentum) {
  const auto sgd = [](std::vector<Operands> m, double momentum, bool nesterov) {
    InferCase c(Sgd);
    c.list({f32("w", {2})}).list({f32("g", {2})}).list(m).with({f32("lr", {}), of(I64, "t", {})}).list({});
    if (momentum != 0) c.number("momentum", momentum);
    if (nesterov) c.set("nesterov", 1);
    return c.run();
  };
  EXPECT_EQ(sgd({}, 0, false), "ok");
  EXPECT_EQ(sgd({f32("m", {2})}, 0.9, true), "ok");
  EXPECT_EQ(sgd({f32("m", {2})}, 0, false), "SGD: m has 1 tensors, but momentum=0 keeps none");
  EXPECT_EQ(sgd({}, 0.9, false), "SGD: lists differ in length: params has 1, m has 0");
  EXPECT_EQ(sgd({}, 0, true), "SGD: nesterov=1 needs momentum=");
}

TEST(InferShapes, ClipNorm) {
  EXPECT_EQ(InferCase(ClipNorm).list({f32("g", {2}), f32("h", {3})}).with({unknown("n")}).number("c", 1).run(),
            "n f32 []");
  EXPECT_EQ(InferCase(ClipNorm).list({f32("g", {2})}).with({f32("n", {1})}).number("c", 1).run(),
            "CLIP_NORM: n is [1], wants []");
  EXPECT_EQ(InferCase(ClipNorm).list({f32("g", {2})}).with({unknown("n")}).run(), "CLIP_NORM: c= is missing");
}

}  // namespace
}  // namespace tape
