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
    {"tensor cores", ".param a f32[3,4]\n.param b f32[4,2]\n", "  MATMUL y, a, b, math=tf32\n"},
    {"softmax", ".param a f64[3,4]\n", "  SOFTMAX b, a\n  LOG_SOFTMAX c, a, axis=0\n  MUL y, b, c\n"},
    {"losses", ".param a f64[3,4]\n.param t f64[3,4]\n.data l i32[3] = 0 3 1\n",
     "  CROSS_ENTROPY b, a, l\n  MSE_LOSS c, a, t\n  MUL y, b, c\n"},
    {"entropies",
     ".param a f64[3,4] uniform lo=0.2 hi=0.8\n.param t f64[3,4] uniform lo=0.3 hi=0.7 seed=2\n"
     ".data l i32[3] = 0 3 1\n",
     "  LOG_SOFTMAX p, a\n  NLL_LOSS b, p, l\n  BCE_LOSS c, a, t\n  BCE_LOGITS_LOSS d, a, t, reduction=sum\n"
     "  MAE_LOSS e, a, t\n  HUBER_LOSS g, a, t, delta=0.1\n  MUL y, b, c\n  ADD y, y, d\n  ADD y, y, e\n"
     "  MUL y, y, g\n"},
    {"norms", ".param a f64[2,4,3]\n.param w f64[3]\n.param b f64[3]\n.param v f64[4]\n",
     "  LAYER_NORM c, a, weight=w, bias=b\n  RMS_NORM d, c, weight=w\n  GROUP_NORM y, d, weight=v, groups=2\n"},
    {"batch norm", ".param a f64[5,3]\n.param w f64[3]\n.param b f64[3]\n.state m f64[3] zeros\n.state s f64[3] ones\n",
     "  BATCH_NORM y, a, m, s, weight=w, bias=b, training=1\n"},
    {"images", ".param a f64[2,2,6,5]\n.param w f64[4,1,3,3]\n.param b f64[4]\n.param v f64[4,3,2,2]\n",
     "  CONV2D c, a, w, bias=b, pad=[1, 1], groups=2\n  MAX_POOL2D d, c, kernel=[2, 2]\n"
     "  CONV_TRANSPOSE2D e, d, v, stride=[2, 2]\n  UPSAMPLE_NEAREST2D g, e, scale=[2, 2]\n"
     "  AVG_POOL2D h, g, kernel=[3, 3], stride=[2, 2]\n  GLOBAL_AVG_POOL y, h\n"},
    {"attention", ".param q f64[4,6,8]\n.param k f64[2,6,8]\n.param v f64[2,6,8]\n.data at i32[6] = 0 1 2 3 4 5\n",
     "  ROPE r, q, at\n  ROPE s, k, at, style=half\n  ATTENTION t, r, s, v, causal=1\n  CAUSAL_SOFTMAX u, t\n"
     "  MUL y, u, t\n"},
    {"cells",
     ".param x f64[2,3]\n.param h f64[2,4]\n.param c f64[2,4]\n.param wi f64[16,3]\n.param wh f64[16,4]\n"
     ".param gi f64[12,3]\n.param gh f64[12,4]\n",
     "  LSTM_CELL h2, c2, x, h, c, wi, wh\n  GRU_CELL h3, x, h2, gi, gh\n  MUL y, h3, c2\n"},
    {"maps", ".param a f32[4,3]\n.param b f16[3]\n",
     "  MAP [c, d], [a, b] {\n    CAST h, a, dtype=f16\n    MUL u, h, b\n    SIN c, u\n    CAST w, c, dtype=f32\n"
     "    MUL d, w, a\n  }\n  MAP_REDUCE [y], [d, a], reduce=sum, axes=1 {\n    TANH t, d\n    MUL y, t, a\n  }\n"
     "  CAST e, c, dtype=f32\n  SUM s, e, axes=1\n  ADD y, y, s\n"},
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
