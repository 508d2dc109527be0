// Shape rules of positions and attention met and broken.
#include <gtest/gtest.h>

#include "tests/opcodes/infer_case.h"

namespace tape {
namespace {

using enum DType;
using enum Opcode;

TEST(InferAttention, Rope) {
  const auto rope = [](Shape src, Shape pos) {
    return InferCase(Rope).with({unknown("y"), f32("x", src), of(I32, "p", pos)}).run();
  };
  EXPECT_EQ(rope({2, 3, 4}, {3}), "y f32 [2,3,4]");
  EXPECT_EQ(rope({3, 4}, {}), "y f32 [3,4]");
  EXPECT_EQ(rope({4}, {}), "ROPE: x [4] has no rows: wants rank 2 or more");
  EXPECT_EQ(rope({2, 3}, {2}), "ROPE: the last axis of x [2,3] is odd");
  EXPECT_EQ(rope({2, 4}, {4}), "ROPE: p [4] is neither a scalar nor one position for each row of x [2,4]");
  EXPECT_EQ(InferCase(Rope).with({f32("y", {4, 2}), f32("x", {2, 4}), of(I32, "p", {})}).run(),
            "ROPE: y is [4,2], wants [2,4] as x");
  EXPECT_EQ(InferCase(Rope).with({unknown("y"), f32("x", {2, 4}), f32("p", {})}).run(),
            "ROPE: p is f32, wants i64 i32");
}

TEST(InferAttention, Attention) {
  const auto attention = [](Shape q, Shape k, Shape v) {
    return InferCase(Attention).with({unknown("y"), f32("q", q), f32("k", k), f32("v", v)}).absent().absent().run();
  };
  EXPECT_EQ(attention({2, 4, 3, 8}, {2, 2, 5, 8}, {2, 2, 5, 6}), "y f32 [2,4,3,6]");
  EXPECT_EQ(attention({3, 8}, {5, 8}, {5, 6}), "y f32 [3,6]");
  EXPECT_EQ(attention({0, 3, 8}, {0, 5, 8}, {0, 5, 6}), "y f32 [0,3,6]");
  EXPECT_EQ(attention({8}, {8}, {8}), "ATTENTION: q [8] wants rank 2, 3 or 4");
  EXPECT_EQ(attention({3, 8}, {1, 5, 8}, {5, 6}), "ATTENTION: ranks differ: q [3,8], k [1,5,8], v [5,6]");
  EXPECT_EQ(attention({3, 8}, {5, 7}, {5, 6}), "ATTENTION: last axes differ: q [3,8], k [5,7]");
  EXPECT_EQ(attention({3, 8}, {5, 8}, {4, 6}), "ATTENTION: k [5,8] and v [4,6] differ in an axis before the last");
  EXPECT_EQ(attention({1, 2, 3, 8}, {2, 2, 5, 8}, {2, 2, 5, 6}), "ATTENTION: batches differ: q [1,2,3,8], k [2,2,5,8]");
  EXPECT_EQ(attention({3, 3, 8}, {2, 5, 8}, {2, 5, 6}),
            "ATTENTION: the heads of q [3,3,8] are no multiple of those of k [2,5,8]");
  EXPECT_EQ(attention({3, 3, 8}, {0, 5, 8}, {0, 5, 6}),
            "ATTENTION: the heads of q [3,3,8] are no multiple of those of k [0,5,8]");
  const auto lengths = [](Shape n, Shape lse) {
    return InferCase(Attention)
        .with({unknown("y"), f32("q", {2, 1, 3, 4}), f32("k", {2, 1, 5, 4}), f32("v", {2, 1, 5, 4}), of(I32, "n", n),
               f32("s", lse)})
        .run();
  };
  EXPECT_EQ(lengths({}, {2, 1, 3}), "y f32 [2,1,3,4], s f32 [2,1,3]");
  EXPECT_EQ(lengths({2}, {2, 1, 3}), "y f32 [2,1,3,4], s f32 [2,1,3]");
  EXPECT_EQ(lengths({3}, {2, 1, 3}),
            "ATTENTION: n [3] is neither a scalar nor one length for each batch of q [2,1,3,4]");
  EXPECT_EQ(lengths({}, {2, 3}), "ATTENTION: s is [2,3], wants [2,1,3] from q [2,1,3,4], v [2,1,5,4]");
  EXPECT_EQ(InferCase(Attention)
                .with({hinted(F32, "y"), of(F16, "q", {1, 2}), of(F16, "k", {1, 2}), of(F16, "v", {1, 2})})
                .absent()
                .with({unknown("s")})
                .run(),
            "y f32 [1,2], s f32 [1]");
}

TEST(InferAttention, AttentionGrad) {
  const auto gradient = [](Shape y, Shape g) {
    return InferCase(AttentionGrad)
        .with({unknown("dq"), unknown("dk"), unknown("dv"), f32("q", {3, 2}), f32("k", {5, 2}), f32("v", {5, 4}),
               f32("y", y), f32("g", g)})
        .absent()
        .absent()
        .run();
  };
  EXPECT_EQ(gradient({3, 4}, {3, 4}), "dq f32 [3,2], dk f32 [5,2], dv f32 [5,4]");
  EXPECT_EQ(gradient({3, 2}, {3, 4}), "ATTENTION_GRAD: y is [3,2], wants [3,4] from q [3,2], v [5,4]");
  EXPECT_EQ(gradient({3, 4}, {4}), "ATTENTION_GRAD: g is [4], wants [3,4] from q [3,2], v [5,4]");
}

}  // namespace
}  // namespace tape
