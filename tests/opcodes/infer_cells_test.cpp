// Shape rules of the recurrent cells, of MATMUL's optional operands and of the optimizers' lists met and broken.
#include <gtest/gtest.h>

#include "tests/opcodes/infer_case.h"

namespace tape {
namespace {

using enum DType;
using enum Opcode;

TEST(InferCells, Lstm) {
  const auto lstm = [](Shape x, Shape h, Shape c, Shape w_ih, Shape w_hh, Shape bias) {
    return InferCase(LstmCell)
        .with({unknown("y"), unknown("s"), f32("x", x), f32("h", h), f32("c", c), f32("v", w_ih), f32("w", w_hh),
               f32("b", bias)})
        .absent()
        .with({unknown("g")})
        .run();
  };
  EXPECT_EQ(lstm({2, 3}, {2, 4}, {2, 4}, {16, 3}, {16, 4}, {16}), "y f32 [2,4], s f32 [2,4], g f32 [2,16]");
  EXPECT_EQ(lstm({0, 0}, {0, 1}, {0, 1}, {4, 0}, {4, 1}, {4}), "y f32 [0,1], s f32 [0,1], g f32 [0,4]");
  EXPECT_EQ(lstm({3}, {2, 4}, {2, 4}, {16, 3}, {16, 4}, {16}), "LSTM_CELL: x [3] wants rank 2");
  EXPECT_EQ(lstm({1, 3}, {2, 4}, {2, 4}, {16, 3}, {16, 4}, {16}), "LSTM_CELL: batches differ: x [1,3], h [2,4]");
  EXPECT_EQ(lstm({2, 3}, {2, 4}, {2, 3}, {16, 3}, {16, 4}, {16}), "LSTM_CELL: c is [2,3], wants [2,4] as h");
  EXPECT_EQ(lstm({2, 3}, {2, 4}, {2, 4}, {12, 3}, {16, 4}, {16}),
            "LSTM_CELL: v is [12,3], wants [16,3] from x [2,3], h [2,4]");
  EXPECT_EQ(lstm({2, 3}, {2, 4}, {2, 4}, {16, 3}, {16, 3}, {16}),
            "LSTM_CELL: w is [16,3], wants [16,4] from x [2,3], h [2,4]");
  EXPECT_EQ(lstm({2, 3}, {2, 4}, {2, 4}, {16, 3}, {16, 4}, {4}),
            "LSTM_CELL: b is [4], wants [16] from x [2,3], h [2,4]");
}

TEST(InferCells, LstmGrad) {
  const auto gradient = [](Shape gates, Shape c, Shape g) {
    return InferCase(LstmCellGrad)
        .with({unknown("d"), unknown("e"), f32("g", gates), f32("p", c), f32("c", c), f32("u", g)})
        .run();
  };
  EXPECT_EQ(gradient({2, 8}, {2, 2}, {2, 2}), "d f32 [2,8], e f32 [2,2]");
  EXPECT_EQ(gradient({2, 6}, {2, 2}, {2, 2}), "LSTM_CELL_GRAD: g [2,6] are no gates of p [2,2]");
  EXPECT_EQ(gradient({2, 8}, {2}, {2, 2}), "LSTM_CELL_GRAD: p [2] wants rank 2");
  EXPECT_EQ(gradient({2, 8}, {2, 2}, {2, 1}), "LSTM_CELL_GRAD: u is [2,1], wants [2,2] as p");
}

TEST(InferCells, Gru) {
  EXPECT_EQ(InferCase(GruCell)
                .with({unknown("y"), f32("x", {2, 3}), f32("h", {2, 4}), f32("v", {12, 3}), f32("w", {12, 4})})
                .run(),
            "y f32 [2,4]");
  EXPECT_EQ(InferCase(GruCell)
                .with({unknown("y"), f32("x", {2, 3}), f32("h", {2, 4}), f32("v", {16, 3}), f32("w", {12, 4})})
                .run(),
            "GRU_CELL: v is [16,3], wants [12,3] from x [2,3], h [2,4]");
  EXPECT_EQ(InferCase(GruCellGrad)
                .with({unknown("a"), unknown("b"), unknown("c"), f32("s", {2, 8}), f32("h", {2, 2}), f32("g", {2, 2})})
                .run(),
            "a f32 [2,6], b f32 [2,6], c f32 [2,2]");
  EXPECT_EQ(InferCase(GruCellGrad)
                .with({unknown("a"), unknown("b"), unknown("c"), f32("s", {2, 8}), f32("h", {2, 2}), f32("g", {4})})
                .run(),
            "GRU_CELL_GRAD: g is [4], wants [2,2] as h");
}

TEST(InferMatMul, OptionalOperands) {
  const auto matmul = [](DType dtype, Shape b, Shape bias, int64_t act, bool accumulate) {
    InferCase made(MatMul);
    made.with({accumulate ? of(dtype, "y", {2, 4}) : unknown("y"), of(dtype, "a", {2, 3}), of(dtype, "b", b),
               of(dtype, "c", bias)});
    if (!accumulate) made.with({unknown("z")});
    if (act != 0) made.set("act", act);
    if (accumulate) made.set("acc", 1);
    return made.run();
  };
  EXPECT_EQ(matmul(F32, {3, 4}, {4}, 1, false), "y f32 [2,4], z f32 [2,4]");
  EXPECT_EQ(matmul(I32, {3, 4}, {4}, 0, false), "y i32 [2,4], z i32 [2,4]");
  EXPECT_EQ(matmul(I32, {3, 4}, {4}, 1, false), "MATMUL: act= needs floats, a i32");
  EXPECT_EQ(matmul(F32, {3, 4}, {3}, 1, false), "MATMUL: c is [3], wants [4] from b [3,4]");
  EXPECT_EQ(matmul(F32, {3}, {1}, 0, false), "MATMUL: bias= needs a matrix on the right: b [3]");
  EXPECT_EQ(matmul(F32, {3, 4}, {4}, 0, true), "y f32 [2,4]");
  EXPECT_EQ(matmul(F32, {3, 4}, {4}, 1, true), "MATMUL: acc=1 excludes act= and aux=");
}

TEST(InferOptimizer, OnlyTheMomentMayBeMissing) {
  const auto rmsprop = [](std::vector<Operands> v, std::vector<Operands> m, double momentum) {
    InferCase made(RmsProp);
    made.list({f32("w", {2})}).list({f32("g", {2})}).list(v).list(m).with({f32("lr", {}), of(I64, "t", {})});
    if (momentum != 0) made.number("momentum", momentum);
    return made.run();
  };
  const Operands v = f32("v", {2}), m = f32("m", {2});
  EXPECT_EQ(rmsprop({v}, {}, 0), "ok");
  EXPECT_EQ(rmsprop({v}, {m}, 0.5), "ok");
  EXPECT_EQ(rmsprop({}, {}, 0), "RMSPROP: lists differ in length: params has 1, v has 0");
  EXPECT_EQ(rmsprop({v}, {m}, 0), "RMSPROP: m has 1 tensors, but momentum=0 keeps none");
  EXPECT_EQ(rmsprop({v}, {}, 0.5), "RMSPROP: lists differ in length: params has 1, m has 0");
  EXPECT_EQ(InferCase(AmsGrad)
                .list({f32("w", {2})})
                .list({f32("g", {2})})
                .list({m})
                .list({v})
                .list({f32("x", {3})})
                .with({f32("lr", {}), of(I64, "t", {})})
                .run(),
            "AMSGRAD: x is [3], wants [2] as w");
}

}  // namespace
}  // namespace tape
