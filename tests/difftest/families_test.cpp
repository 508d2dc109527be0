// Derived gradients of every family of commands, through small tapes, each against its difference quotients. The tape
// lines of a case write y, of any shape.
#include "tests/difftest/support.h"

namespace tape::test {
namespace {

struct Family {
  const char* name;
  const char* declarations;  // parameters and what else it reads; a is positive where an op wants that
  const char* lines;
};

const Family kFamilies[] = {
    {"copies", ".param a f64[2,3]\n", "  COPY b, a\n  CAST y, b, dtype=f32\n"},
    {"reshapes", ".param a f64[2,3]\n", "  TRANSPOSE b, a\n  RESHAPE c, b, shape=[6]\n  BROADCAST y, c, shape=[2,6]\n"},
    {"parts", ".param a f64[4,3]\n.param b f64[2,3]\n",
     "  CONCAT c, a, b\n  SPLIT [d, e], c\n  SLICE f, d, start=[0], stop=[3], step=[2]\n  FLIP g, e\n"
     "  PAD h, f, low=[1], high=[0, 1], value=2\n  CONCAT y, h, h, axis=1\n  SUM s, g\n  ADD y, y, s\n"},
    {"dynamic parts", ".param a f64[4,3]\n.param b f64[2,2]\n.data i i32[] = 1\n.data j i32[] = 0\n",
     "  COPY y, a\n  DYNAMIC_UPDATE_SLICE y, b, i, j\n"},
    {"indexing", ".param a f64[4,3]\n.param b f64[3,3]\n.data i i32[3] = 2 0 2\n",
     "  GATHER y, a, i\n  SCATTER_ADD y, i, b\n"},
    {"masks", ".param a f64[3,3]\n.param b f64[3,3]\n",
     "  GT m, a, b\n  WHERE c, m, a, b\n  TRIANGLE y, c, diagonal=0\n"},
    {"trigonometry", ".param a f64[5]\n", "  SIN b, a\n  COS c, a\n  TANH d, c\n  ATAN2 y, b, d\n"},
    {"exponentials", ".param a f64[5] uniform lo=0.5 hi=2\n",
     "  EXP b, a\n  LOG c, b\n  SQRT d, c\n  RECIP e, d\n  POW y, a, e\n"},
    {"activations", ".param a f64[7]\n",
     "  RELU b, a\n  GELU c, a\n  SILU d, a\n  SOFTPLUS e, a\n  ELU f, a\n  MUL y, b, c\n  ADD y, y, d\n  MUL y, y, e\n"
     "  SUB y, y, f\n"},
    {"accumulation", ".param a f64[5]\n.param b f64[5]\n", "  EXP y, a\n  MUL y, a, b, acc=1\n"},
    {"broadcasts", ".param a f64[2,1,3]\n.param b f64[4,1] uniform lo=1 hi=2\n",
     "  MUL c, a, b\n  DIV d, a, b\n  SUB y, c, d\n  MAX y, y, 0.25\n"},
    {"reductions", ".param a f64[3,4]\n",
     "  SUM b, a, axes=0\n  MEAN c, a, axes=[1], keepdims=1\n  VAR d, a, axes=1, keepdims=1\n  NORM2 e, a\n  MUL y, b, "
     "c\n"
     "  ADD y, y, d\n  MUL y, y, e\n"},
    {"extremes", ".param a f64[3,4]\n",
     "  REDUCE_MAX b, a, axes=0\n  REDUCE_MIN c, a\n  LOGSUMEXP d, a, axes=0\n  MUL y, b, c\n  ADD y, y, d\n"},
    {"products", ".param a f64[3,4]\n", "  PROD b, a, axes=1\n  CUMSUM c, b, axis=0\n  CUMPROD y, c, axis=0\n"},
    {"matrices", ".param a f64[2,3,4]\n.param b f64[4,3]\n.param v f64[3]\n",
     "  MATMUL c, a, b\n  MATMUL d, c, v\n  OUTER e, v, v\n  DOT f, v, v\n  MATMUL y, d, e\n  MUL y, y, f\n"},
    {"softmax", ".param a f64[3,4]\n", "  SOFTMAX b, a\n  LOG_SOFTMAX c, a, axis=0\n  MUL y, b, c\n"},
    {"losses", ".param a f64[3,4]\n.param t f64[3,4]\n.data l i32[3] = 0 3 1\n",
     "  CROSS_ENTROPY b, a, l\n  MSE_LOSS c, a, t\n  MUL y, b, c\n"},
    {"dropout", ".param a f64[20]\n.rng r seed=1\n", "  DROPOUT b, m, a, r, p=0.25\n  SQUARE y, b\n"},
    {"loops", ".param a f64[3]\n.param b f64[3]\n", "  COPY y, a\n  REPEAT 4\n    MUL y, y, b\n    SIN y, y\n  END\n"},
};

class Families : public testing::TestWithParam<Family> {};

TEST_P(Families, DerivedGradientIsTheSlope) {
  const Family& family = GetParam();
  GradCheckOptions options;
  options.losses = {"y"};
  const std::string text = std::string(family.declarations) + ".tape forward\n" + family.lines + ".end\n";
  const GradCheckReport report = check(text, options);
  EXPECT_EQ(report.verdict, GradVerdict::Ok) << text_of(report);
  for (const GradTensor& tensor : report.tensors) EXPECT_EQ(tensor.verdict, GradVerdict::Ok) << text_of(report);

  // A gradient one part in a thousand off is not taken for one.
  options.adjust = [](const std::string&, std::span<double> gradient) {
    for (double& value : gradient) value *= 1.001;
  };
  EXPECT_EQ(check(text, options).verdict, GradVerdict::Mismatch);
}

INSTANTIATE_TEST_SUITE_P(All, Families, testing::ValuesIn(kFamilies), [](const auto& at) {
  std::string name = at.param.name;
  for (char& c : name)
    if (c == ' ') c = '_';
  return name;
});

}  // namespace
}  // namespace tape::test
