// Shape rules of losses, CAUSAL_SOFTMAX and norms, met and broken.
#include <gtest/gtest.h>

#include "tests/opcodes/infer_case.h"

namespace tape {
namespace {

using enum DType;
using enum Opcode;

TEST(InferLosses, NllLoss) {
  const auto loss = [](Shape labels, int64_t reduction) {
    return InferCase(NllLoss)
        .with({unknown("l"), f32("p", {4, 10}), of(I64, "t", labels)})
        .set("reduction", reduction)
        .run();
  };
  EXPECT_EQ(loss({4}, 0), "l f32 []");
  EXPECT_EQ(loss({4}, 2), "l f32 [4]");
  EXPECT_EQ(loss({10}, 0), "NLL_LOSS: labels are not logp without the last axis: p [4,10], t [10]");
  EXPECT_EQ(InferCase(NllLoss).with({unknown("l"), f32("p", {4, 10}), f32("t", {4})}).run(),
            "NLL_LOSS: t is f32, wants i64 i32");
  const auto gradient = [](Operands dst, Shape g) {
    return InferCase(NllLossGrad).with({dst, of(I32, "t", {4}), f32("g", g)}).run();
  };
  EXPECT_EQ(gradient(f32("d", {4, 10}), {}), "d f32 [4,10]");
  EXPECT_EQ(gradient(of(F16, "d", {4, 10}), {}), "d f16 [4,10]");
  EXPECT_EQ(gradient(f32("d", {5, 10}), {}),
            "NLL_LOSS_GRAD: labels are not dst without the last axis: d [5,10], t [4]");
  EXPECT_EQ(gradient(f32("d", {4}), {}), "NLL_LOSS_GRAD: labels are not dst without the last axis: d [4], t [4]");
  EXPECT_EQ(gradient(f32("d", {4, 10}), {4}), "NLL_LOSS_GRAD: g is [4], wants [] with reduction=mean");
  EXPECT_EQ(gradient(hinted(F32, "d"), {}), "NLL_LOSS_GRAD: d has no shape: add shape= or declare it");
}

TEST(InferLosses, Pairs) {
  for (const Opcode opcode : {MaeLoss, BceLoss, BceLogitsLoss, HuberLoss}) {
    const std::string name(op_info(opcode).mnemonic);
    EXPECT_EQ(InferCase(opcode).with({unknown("l"), f32("a", {2, 3}), f32("b", {2, 3})}).run(), "l f32 []");
    EXPECT_EQ(InferCase(opcode).with({unknown("l"), f32("a", {2, 3}), f32("b", {3})}).run(),
              name + ": shapes differ: a [2,3], b [3]");
  }
  for (const Opcode opcode : {MaeLossGrad, BceLossGrad, BceLogitsLossGrad, HuberLossGrad}) {
    const std::string name(op_info(opcode).mnemonic);
    EXPECT_EQ(InferCase(opcode).with({unknown("d"), f32("a", {2}), f32("b", {2}), f32("g", {})}).run(), "d f32 [2]");
    EXPECT_EQ(InferCase(opcode).with({unknown("d"), f32("a", {2}), f32("b", {2}), f32("g", {2})}).run(),
              name + ": g is [2], wants [] with reduction=mean");
  }
}

TEST(InferNorms, CausalSoftmax) {
  EXPECT_EQ(InferCase(CausalSoftmax).with({unknown("y"), f32("x", {2, 3, 5})}).run(), "y f32 [2,3,5]");
  EXPECT_EQ(InferCase(CausalSoftmax).with({unknown("y"), f32("x", {5, 3})}).run(),
            "CAUSAL_SOFTMAX: has more rows than columns: x [5,3]");
  EXPECT_EQ(InferCase(CausalSoftmax).with({unknown("y"), f32("x", {5})}).run(),
            "CAUSAL_SOFTMAX: wants [..., Q, K], x [5]");
  EXPECT_EQ(InferCase(CausalSoftmaxGrad).with({unknown("d"), f32("y", {2, 3}), f32("g", {3, 3})}).run(),
            "CAUSAL_SOFTMAX_GRAD: g is [3,3], wants [2,3] as y");
  EXPECT_EQ(InferCase(CausalSoftmaxGrad).with({unknown("d"), f32("y", {3, 2}), f32("g", {3, 2})}).run(),
            "CAUSAL_SOFTMAX_GRAD: has more rows than columns: y [3,2]");
}

TEST(InferNorms, LayerNorm) {
  const auto norm = [](int64_t axis, Operands weight, Operands mean) {
    return InferCase(LayerNorm)
        .with({unknown("y"), f32("x", {2, 3, 4}), weight, f32("b", {4}), mean, unknown("r")})
        .set("axis", axis)
        .run();
  };
  EXPECT_EQ(norm(-1, f32("w", {4}), unknown("m")), "y f32 [2,3,4], m f32 [2,3], r f32 [2,3]");
  EXPECT_EQ(norm(-1, f32("w", {3}), unknown("m")), "LAYER_NORM: w is [3], wants [4] from x [2,3,4]");
  EXPECT_EQ(norm(1, f32("w", {3, 4}), unknown("m")), "LAYER_NORM: b is [4], wants [3,4] from x [2,3,4]");
  EXPECT_EQ(norm(-1, f32("w", {4}), f32("m", {2, 3, 1})), "LAYER_NORM: m is [2,3,1], wants [2,3] from x [2,3,4]");
  EXPECT_EQ(norm(3, f32("w", {4}), unknown("m")), "LAYER_NORM: axis=3 is out of range for x [2,3,4]");
  EXPECT_EQ(
      InferCase(LayerNorm)
          .with({unknown("y"), of(F16, "x", {2, 3}), f32("w", {3}), of(F16, "b", {3}), unknown("m"), unknown("r")})
          .run(),
      "y f16 [2,3], m f32 [2], r f32 [2]");
  EXPECT_EQ(InferCase(LayerNormGrad)
                .with({unknown("d"), f32("x", {2, 3}), f32("g", {3}), f32("w", {3}), f32("m", {2}), f32("r", {2})})
                .run(),
            "LAYER_NORM_GRAD: g is [3], wants [2,3] as x");
  EXPECT_EQ(InferCase(LayerNormGrad)
                .with({unknown("d"), f32("x", {2, 3}), f32("g", {2, 3}), f32("w", {3}), f32("m", {3}), f32("r", {2})})
                .run(),
            "LAYER_NORM_GRAD: m is [3], wants [2] from x [2,3]");
  EXPECT_EQ(InferCase(LayerNormWeightGrad)
                .with({unknown("d"), f32("x", {2, 3, 4}), f32("g", {2, 3, 4})})
                .absent()
                .absent()
                .set("axis", 1)
                .run(),
            "d f32 [3,4]");
  EXPECT_EQ(
      InferCase(LayerNormWeightGrad).with({f32("d", {2}), f32("x", {2, 3}), f32("g", {2, 3})}).absent().absent().run(),
      "LAYER_NORM_WEIGHT_GRAD: d is [2], wants [3] from x [2,3]");
}

TEST(InferNorms, RmsNorm) {
  EXPECT_EQ(InferCase(RmsNorm).with({unknown("y"), f32("x", {2, 3}), f32("w", {3}), unknown("r")}).run(),
            "y f32 [2,3], r f32 [2]");
  EXPECT_EQ(InferCase(RmsNorm).with({unknown("y"), f32("x", {2, 3}), f32("w", {2}), unknown("r")}).run(),
            "RMS_NORM: w is [2], wants [3] from x [2,3]");
  EXPECT_EQ(InferCase(RmsNormGrad)
                .with({unknown("d"), f32("x", {2, 3}), f32("g", {2, 3}), f32("w", {2}), f32("r", {2})})
                .run(),
            "RMS_NORM_GRAD: w is [2], wants [3] from x [2,3]");
  EXPECT_EQ(InferCase(RmsNormWeightGrad).with({unknown("d"), f32("x", {2, 3}), f32("g", {2, 3}), f32("r", {3})}).run(),
            "RMS_NORM_WEIGHT_GRAD: r is [3], wants [2] from x [2,3]");
}

TEST(InferNorms, GroupNorm) {
  const auto norm = [](Shape x, int64_t groups) {
    return InferCase(GroupNorm)
        .with({unknown("y"), f32("x", x), f32("w", {4}), f32("b", {4}), unknown("m"), unknown("r")})
        .set("groups", groups)
        .run();
  };
  EXPECT_EQ(norm({2, 4, 5}, 2), "y f32 [2,4,5], m f32 [2,2], r f32 [2,2]");
  EXPECT_EQ(norm({2, 4, 5}, 3), "GROUP_NORM: groups=3 does not divide the channels of x [2,4,5]");
  EXPECT_EQ(norm({4}, 2), "GROUP_NORM: wants [N, C, ...], x [4]");
  EXPECT_EQ(norm({2, 6}, 2), "GROUP_NORM: w is [4], wants [6] from x [2,6]");
  EXPECT_EQ(
      InferCase(GroupNormGrad)
          .with({unknown("d"), f32("x", {2, 4}), f32("g", {2, 4}), f32("w", {4}), f32("m", {2}), f32("r", {2, 2})})
          .set("groups", 2)
          .run(),
      "GROUP_NORM_GRAD: m is [2], wants [2,2] from x [2,4]");
  EXPECT_EQ(InferCase(GroupNormWeightGrad)
                .with({f32("d", {2}), f32("x", {2, 4}), f32("g", {2, 4})})
                .absent()
                .absent()
                .set("groups", 2)
                .run(),
            "GROUP_NORM_WEIGHT_GRAD: d is [2], wants [4] from x [2,4]");
}

TEST(InferNorms, BatchNorm) {
  const auto norm = [](Shape x, Shape running, int64_t training) {
    return InferCase(BatchNorm)
        .with({unknown("y"), f32("x", x), f32("rm", running), f32("rv", running), f32("w", {3}), f32("b", {3}),
               unknown("m"), unknown("r")})
        .set("training", training)
        .run();
  };
  EXPECT_EQ(norm({2, 3, 5}, {3}, 1), "y f32 [2,3,5], m f32 [3], r f32 [3]");
  EXPECT_EQ(norm({2, 3, 5}, {5}, 1), "BATCH_NORM: rm is [5], wants [3] from x [2,3,5]");
  EXPECT_EQ(norm({1, 3}, {3}, 0), "y f32 [1,3], m f32 [3], r f32 [3]");
  EXPECT_EQ(norm({1, 3}, {3}, 1), "BATCH_NORM: training=1 needs at least 2 values of each channel, x [1,3]");
  EXPECT_EQ(norm({3}, {3}, 1), "BATCH_NORM: wants [N, C, ...], x [3]");
  const auto gradient = [](int64_t training) {
    return InferCase(BatchNormGrad)
        .with({unknown("d"), f32("x", {4, 3}), f32("g", {4, 3})})
        .absent()
        .with({f32("m", {3})})
        .absent()
        .set("training", training)
        .run();
  };
  EXPECT_EQ(gradient(1), "d f32 [4,3]");
  EXPECT_EQ(gradient(0), "BATCH_NORM_GRAD: training=0 needs mean= and rstd=");
  EXPECT_EQ(InferCase(BatchNormWeightGrad)
                .with({unknown("d"), f32("x", {4, 3}), f32("g", {4, 3}), f32("m", {4}), f32("r", {3})})
                .run(),
            "BATCH_NORM_WEIGHT_GRAD: m is [4], wants [3] from x [4,3]");
}

}  // namespace
}  // namespace tape
