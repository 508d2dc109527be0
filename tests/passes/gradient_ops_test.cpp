// The gradient of every row with a rule, against central differences of the float64 oracle, at several shapes, with
// broadcasts and attributes. A row whose rule no case plays is a failure.
#include <fmt/format.h>

#include <cctype>
#include <set>

#include "tests/passes/gradient_case.h"
#include "tests/passes/support.h"

namespace tape::test {
namespace {

std::string first_word(const std::string& text) {
  return text.substr(0, text.find(' '));
}

std::string text_of(const Case& at) {
  std::string text;
  for (const Source& source : at.sources) text += ".param " + source.declaration + "\n";
  text += at.more + ".output " + at.result + "\n.tape f\n" + at.body + ".end\n";
  return text + ".grad b of=f loss=" + first_word(at.result) + " seed=extern\n";
}

std::vector<Case> unary_cases() {
  struct Unary {
    std::string op;
    double low, high;
  };
  const Unary list[] = {{"NEG", -2, 2},
                        {"ABS", -2, 2},
                        {"SQUARE", -2, 2},
                        {"SQRT", 0.5, 3},
                        {"RSQRT", 0.5, 3},
                        {"RECIP", 0.5, 3},
                        {"EXP", -2, 2},
                        {"EXPM1", -2, 2},
                        {"LOG", 0.5, 3},
                        {"LOG1P", -0.5, 3},
                        {"SIN", -3, 3},
                        {"COS", -3, 3},
                        {"TAN", -1, 1},
                        {"TANH", -2, 2},
                        {"SIGMOID", -4, 4},
                        {"ERF", -2, 2},
                        {"RELU", -2, 2},
                        {"LEAKY_RELU", -2, 2},
                        {"LEAKY_RELU alpha=0.3", -2, 2},
                        {"ELU", -2, 2},
                        {"ELU alpha=1.5", -2, 2},
                        {"GELU", -3, 3},
                        {"GELU_TANH", -3, 3},
                        {"SILU", -4, 4},
                        {"MISH", -4, 4},
                        {"SOFTPLUS", -4, 4},
                        {"HARDTANH", -2, 2},
                        {"HARDTANH lo=-0.5 hi=1.5", -2, 2},
                        {"CLIP lo=-1 hi=0.5", -2, 2},
                        {"CLIP lo=-0.25", -2, 2},
                        {"CLIP hi=0.25", -2, 2},
                        {"CLIP", -2, 2},
                        {"COPY", -2, 2},
                        {"CAST", -2, 2},
                        {"POW -1.5", 0.5, 2},
                        {"POW 3", -2, 2},
                        {"POW 2", -2, 2},
                        {"POW 1", -2, 2},
                        {"POW 0", -2, 2},
                        {"ADD 0.5", -2, 2},
                        {"SUB 0.5", -2, 2},
                        {"MUL -1.5", -2, 2},
                        {"DIV 3", -2, 2},
                        {"MIN 0.5", -2, 2},
                        {"MAX 0.5", -2, 2},
                        {"ATAN2 0.5", -2, 2}};
  std::vector<Case> cases;
  for (const Unary& at : list) {
    const std::string op = first_word(at.op);
    std::string rest;
    for (size_t begin = op.size(); begin < at.op.size();) {
      const size_t end = std::min(at.op.find(' ', begin + 1), at.op.size());
      rest += ", " + at.op.substr(begin + 1, end - begin - 1);
      begin = end;
    }
    for (const std::string shape : {"[]", "[5]", "[2,3]", "[0,2]"})
      cases.push_back({at.op + " " + shape,
                       {{"a f64" + shape, at.low, at.high}},
                       "y f64" + shape,
                       "  " + op + " y, a" + rest + "\n",
                       ""});
    // Added to what y held, which has its own gradient.
    if (find_op(op)->attribute("acc") >= 0)
      cases.push_back({at.op + " acc",
                       {{"a f64[3]", at.low, at.high}, {"c f64[3]"}},
                       "y f64[3]",
                       "  SIN y, c\n  " + op + " y, a" + rest + ", acc=1\n",
                       ""});
  }
  return cases;
}

std::vector<Case> binary_cases() {
  struct Binary {
    std::string op;
    double low, high;
  };
  const Binary list[] = {{"ADD", -2, 2},  {"SUB", -2, 2}, {"MUL", -2, 2}, {"DIV", 0.5, 2},
                         {"POW", 0.5, 2}, {"MIN", -2, 2}, {"MAX", -2, 2}, {"ATAN2", 0.3, 2}};
  const std::vector<std::string> shapes[] = {
      {"[3]", "[3]", "[3]"},           {"[2,3]", "[3]", "[2,3]"}, {"[3,1]", "[4]", "[3,4]"}, {"[]", "[2,2]", "[2,2]"},
      {"[2,1,3]", "[4,1]", "[2,4,3]"}, {"[1,1]", "[3]", "[1,3]"}, {"[0]", "[1]", "[0]"}};
  std::vector<Case> cases;
  for (const Binary& at : list) {
    for (const auto& shape : shapes)
      cases.push_back({at.op + " " + shape[0] + shape[1],
                       {{"a f64" + shape[0], at.low, at.high}, {"c f64" + shape[1], at.low, at.high}},
                       "y f64" + shape[2],
                       "  " + at.op + " y, a, c\n",
                       ""});
    cases.push_back(
        {at.op + " of itself", {{"a f64[3]", 0.5, 2}}, "y f64[3]", "  MUL t, a, 1.5\n  " + at.op + " y, a, t\n", ""});
    cases.push_back({at.op + " acc",
                     {{"a f64[2,3]", at.low, at.high}, {"c f64[3]", at.low, at.high}},
                     "y f64[2,3]",
                     "  EXP y, a\n  " + at.op + " y, a, c, acc=1\n",
                     ""});
  }
  cases.push_back({"WHERE", {{"a f64[2,3]"}, {"c f64[3]"}}, "y f64[2,3]", "  GT m, a, 0.1\n  WHERE y, m, a, c\n", ""});
  cases.push_back(
      {"WHERE scalar", {{"a f64[]"}, {"c f64[3]"}}, "y f64[3]", "  GT m, c, 0.1\n  WHERE y, m, c, a\n", ""});
  return cases;
}

std::vector<Case> reduction_cases() {
  std::vector<Case> cases;
  struct Form {
    std::string shape, arguments, result;
  };
  const Form forms[] = {{"[5]", "", "[]"},
                        {"[2,3]", ", axes=0", "[3]"},
                        {"[2,3]", ", axes=[1]", "[2]"},
                        {"[2,3,4]", ", axes=[0, 2]", "[3]"},
                        {"[2,3,4]", ", axes=[-2], keepdims=1", "[2,1,4]"},
                        {"[2,3]", ", keepdims=1", "[1,1]"},
                        {"[]", "", "[]"}};
  for (const std::string op : {"SUM", "MEAN", "PROD", "REDUCE_MAX", "REDUCE_MIN", "LOGSUMEXP", "NORM2", "VAR"}) {
    for (const Form& form : forms)
      cases.push_back({op + form.shape + form.arguments,
                       {{"a f64" + form.shape}},
                       "y f64" + form.result,
                       "  " + op + " y, a" + form.arguments + "\n",
                       ""});
    if (find_op(op)->attribute("acc") >= 0)
      cases.push_back({op + " acc",
                       {{"a f64[2,3]"}, {"c f64[3]"}},
                       "y f64[3]",
                       "  SIN y, c\n  " + op + " y, a, axes=0, acc=1\n",
                       ""});
  }
  cases.push_back({"VAR unbiased", {{"a f64[2,3]"}}, "y f64[2]", "  VAR y, a, axes=1, correction=1\n", ""});
  cases.push_back({"SUM of nothing", {{"a f64[0,3]"}}, "y f64[3]", "  SUM y, a, axes=0\n", ""});
  return cases;
}

std::vector<Case> matmul_cases() {
  struct Form {
    std::string a, c, result, arguments;
  };
  const Form forms[] = {{"[2,3]", "[3,4]", "[2,4]", ""},
                        {"[3,2]", "[3,4]", "[2,4]", ", trans_a=1"},
                        {"[2,3]", "[4,3]", "[2,4]", ", trans_b=1"},
                        {"[3,2]", "[4,3]", "[2,4]", ", trans_a=1, trans_b=1"},
                        {"[3]", "[3]", "[]", ""},
                        {"[3]", "[3,2]", "[2]", ""},
                        {"[2,3]", "[3]", "[2]", ""},
                        {"[3]", "[2,3]", "[2]", ", trans_b=1"},
                        {"[3,2]", "[3]", "[2]", ", trans_a=1"},
                        {"[2,2,3]", "[3,4]", "[2,2,4]", ""},
                        {"[2,3,2]", "[3,4]", "[2,2,4]", ", trans_a=1"},
                        {"[2,2,3]", "[4,3]", "[2,2,4]", ", trans_b=1"},
                        {"[2,1,2,3]", "[3,3,2]", "[2,3,2,2]", ""},
                        {"[2,3]", "[5,3,2]", "[5,2,2]", ""},
                        {"[3]", "[2,3,2]", "[2,2]", ""},
                        {"[2,2,3]", "[3]", "[2,2]", ""},
                        {"[2,0]", "[0,3]", "[2,3]", ""},
                        {"[2,3]", "[3,2]", "[2,2]", ", alpha=-0.5"}};
  std::vector<Case> cases;
  for (const Form& form : forms)
    cases.push_back({"MATMUL " + form.a + form.c + form.arguments,
                     {{"a f64" + form.a}, {"c f64" + form.c}},
                     "y f64" + form.result,
                     "  MATMUL y, a, c" + form.arguments + "\n",
                     ""});
  cases.push_back({"MATMUL acc",
                   {{"a f64[2,3]"}, {"c f64[3,2]"}, {"d f64[2,2]"}},
                   "y f64[2,2]",
                   "  SIN y, d\n  MATMUL y, a, c, acc=1\n",
                   ""});
  cases.push_back({"MATMUL of itself", {{"a f64[3,3]"}}, "y f64[3,3]", "  MATMUL y, a, a, trans_b=1\n", ""});
  return cases;
}

std::vector<Case> shape_cases() {
  return {
      {"RESHAPE", {{"a f64[2,3]"}}, "y f64[3,2]", "  RESHAPE y, a\n", ""},
      {"TRANSPOSE", {{"a f64[2,3]"}}, "y f64[3,2]", "  TRANSPOSE y, a\n", ""},
      {"TRANSPOSE perm", {{"a f64[2,3,4]"}}, "y f64[4,2,3]", "  TRANSPOSE y, a, perm=[2, 0, 1]\n", ""},
      {"BROADCAST", {{"a f64[3,1]"}}, "y f64[2,3,4]", "  BROADCAST y, a\n", ""},
      {"BROADCAST scalar", {{"a f64[]"}}, "y f64[2,3]", "  BROADCAST y, a\n", ""},
      {"CONCAT", {{"a f64[2,3]"}, {"c f64[2,1]"}, {"d f64[2,2]"}}, "y f64[2,6]", "  CONCAT y, a, c, d, axis=1\n", ""},
      {"CONCAT first axis", {{"a f64[2,3]"}, {"c f64[1,3]"}}, "y f64[3,3]", "  CONCAT y, a, c\n", ""},
      {"CONCAT with itself", {{"a f64[2]"}}, "y f64[4]", "  CONCAT y, a, a, axis=-1\n", ""},
      {"SLICE", {{"a f64[5,4]"}}, "y f64[2,2]", "  SLICE y, a, start=[0, 1], stop=[4, 3], step=[2, 1]\n", ""},
      {"SLICE negative", {{"a f64[5,2]"}}, "y f64[2,2]", "  SLICE y, a, start=[-3], stop=[-1]\n", ""},
      {"SLICE_GRAD", {{"a f64[2,2]"}}, "y f64[5,4]", "  SLICE_GRAD y, a, start=[0, 1], stop=[4, 3], step=[2, 1]\n", ""},
      {"GATHER", {{"a f64[4,2]"}}, "y f64[3,2]", "  GATHER y, a, i\n", ".input i i32[3] = 2 0 2\n"},
      {"GATHER axis", {{"a f64[2,4]"}}, "y f64[2,2,2]", "  GATHER y, a, i, axis=1\n", ".input i i64[2,2] = 3 1 1 0\n"},
      {"GATHER clip", {{"a f64[4]"}}, "y f64[3]", "  GATHER y, a, i, oob=clip\n", ".input i i32[3] = -5 9 1\n"},
      {"GATHER zero", {{"a f64[4]"}}, "y f64[3]", "  GATHER y, a, i, oob=zero\n", ".input i i32[3] = -5 9 1\n"},
      {"GATHER twice",
       {{"a f64[4,2]"}},
       "y f64[3,2]",
       "  GATHER s, a, i\n  GATHER y, a, j\n  MUL y, y, s\n",
       ".input i i32[3] = 2 0 2\n.input j i32[3] = 1 1 3\n"},
      {"SCATTER_ADD",
       {{"a f64[4,2]"}, {"c f64[3,2]"}},
       "y f64[4,2]",
       "  SIN y, a\n  SCATTER_ADD y, i, c\n",
       ".input i i32[3] = 2 0 2\n"},
      {"SCATTER_ADD zero",
       {{"a f64[4]"}, {"c f64[3]"}},
       "y f64[4]",
       "  COPY y, a\n  SCATTER_ADD y, i, c, oob=zero\n",
       ".input i i32[3] = 7 0 2\n"},
  };
}

std::vector<Case> index_cases() {
  const std::string at = ".input i i32[] = 1\n.input j i64[] = 2\n", twice = ".input i i32[4] = 2 0 2 1\n";
  return {
      {"SPLIT", {{"a f64[6,2]"}}, "y f64[2,2]", "  SPLIT p, q, s, a\n  MUL y, p, s\n  MUL y, y, p\n", ""},
      {"SPLIT axis", {{"a f64[2,5]"}}, "y f64[2,3]", "  SPLIT y, q, a, axis=-1\n", ".local q f64[2,2]\n"},
      {"PAD", {{"a f64[3,2]"}}, "y f64[6,3]", "  PAD y, a, low=[1, 0], high=[2, 1], value=3\n", ""},
      {"PAD reflect", {{"a f64[3,2]"}}, "y f64[7,3]", "  PAD y, a, low=[2, 1], high=2, mode=reflect\n", ""},
      {"PAD circular", {{"a f64[3,2]"}}, "y f64[8,3]", "  PAD y, a, low=[2, 1], high=3, mode=circular\n", ""},
      {"PAD_GRAD", {{"a f64[7,3]"}}, "y f64[3,2]", "  PAD_GRAD y, a, low=[2, 1], high=2, mode=reflect\n", ""},
      {"PAD_GRAD circular", {{"a f64[5]"}}, "y f64[2]", "  PAD_GRAD y, a, low=2, high=1, mode=circular\n", ""},
      {"FLIP", {{"a f64[3,2]"}}, "y f64[3,2]", "  FLIP y, a\n", ""},
      {"FLIP axes", {{"a f64[3,2,2]"}}, "y f64[3,2,2]", "  FLIP y, a, axes=[0, -1]\n", ""},
      {"DYNAMIC_SLICE", {{"a f64[4,5]"}}, "y f64[2,3]", "  DYNAMIC_SLICE y, a, i, j\n", at},
      {"DYNAMIC_SLICE twice",
       {{"a f64[4,2]"}},
       "y f64[2,2]",
       "  DYNAMIC_SLICE s, a, i, shape=[2,2]\n  DYNAMIC_SLICE y, a, j\n  MUL y, y, s\n",
       at},
      {"DYNAMIC_SLICE_GRAD", {{"a f64[2,3]"}}, "y f64[4,5]", "  DYNAMIC_SLICE_GRAD y, a, i, j\n", at},
      {"DYNAMIC_UPDATE_SLICE",
       {{"a f64[4,5]"}, {"c f64[2,3]"}},
       "y f64[4,5]",
       "  SIN y, a\n  DYNAMIC_UPDATE_SLICE y, c, i, j\n",
       at},
      {"SCATTER", {{"a f64[3,2]"}, {"c f64[4,2]"}}, "y f64[3,2]", "  SIN y, a\n  SCATTER y, i, c\n", twice},
      {"SCATTER axis",
       {{"a f64[2,4,2]"}, {"c f64[2,2,2,2]"}},
       "y f64[2,4,2]",
       "  SIN y, a\n  SCATTER y, i, c, axis=1, oob=clip\n",
       ".input i i64[2,2] = 9 3 -1 2\n"},
      {"SCATTER zero",
       {{"a f64[3]"}, {"c f64[4]"}},
       "y f64[3]",
       "  SIN y, a\n  SCATTER y, i, c, oob=zero\n",
       ".input i i64[4] = 7 0 0 -1\n"},
      {"TAKE_ALONG", {{"a f64[2,3]"}}, "y f64[2,4]", "  TAKE_ALONG y, a, i\n", ".input i i32[2,4] = 2 0 2 1 1 1 0 2\n"},
      {"TAKE_ALONG axis",
       {{"a f64[3,2]"}},
       "y f64[2,2]",
       "  TAKE_ALONG y, a, i, axis=0, oob=zero\n",
       ".input i i64[2,2] = 2 5 2 -1\n"},
      {"TAKE_ALONG_GRAD",
       {{"a f64[3,2]"}, {"c f64[2,2]"}},
       "y f64[3,2]",
       "  SIN y, a\n  TAKE_ALONG_GRAD y, i, c, axis=0\n",
       ".input i i64[2,2] = 2 0 2 1\n"},
      {"TRIANGLE", {{"a f64[3,4]"}}, "y f64[3,4]", "  TRIANGLE y, a, diagonal=1, value=5\n", ""},
      {"TRIANGLE upper", {{"a f64[2,3,3]"}}, "y f64[2,3,3]", "  TRIANGLE y, a, diagonal=-1, keep=upper\n", ""},
  };
}

std::vector<Case> scan_cases() {
  return {
      {"CUMSUM", {{"a f64[2,5]"}}, "y f64[2,5]", "  CUMSUM y, a\n", ""},
      {"CUMSUM axis", {{"a f64[4,2]"}}, "y f64[4,2]", "  CUMSUM y, a, axis=0, reverse=1\n", ""},
      {"CUMSUM acc", {{"a f64[3]"}, {"c f64[3]"}}, "y f64[3]", "  SIN y, c\n  CUMSUM y, a, acc=1\n", ""},
      {"CUMPROD", {{"a f64[2,5]"}}, "y f64[2,5]", "  CUMPROD y, a\n", ""},
      {"CUMPROD axis", {{"a f64[4,2]"}}, "y f64[4,2]", "  CUMPROD y, a, axis=0, reverse=1\n", ""},
      {"CUMPROD zeros", {{"a f64[5]"}}, "y f64[5]", "  MUL s, a, k\n  CUMPROD y, s\n", ".input k f64[5] = 1 0 1 0 2\n"},
      {"SORT", {{"a f64[2,5]"}}, "y f64[2,5]", "  SORT y, a\n", ""},
      {"SORT axis", {{"a f64[5,2]"}}, "y f64[5,2]", "  SORT y, a, axis=0, descending=1\n", ""},
      {"TOPK", {{"a f64[2,5]"}}, "y f64[2,3]", "  TOPK y, at, a, k=3\n", ""},
      {"TOPK axis", {{"a f64[5,2]"}}, "y f64[2,2]", "  TOPK y, at, a, k=2, axis=0\n", ""},
      {"OUTER", {{"a f64[3]"}, {"c f64[2]"}}, "y f64[3,2]", "  OUTER y, a, c\n", ""},
      {"OUTER itself", {{"a f64[3]"}}, "y f64[3,3]", "  OUTER y, a, a\n", ""},
      {"DOT", {{"a f64[3]"}, {"c f64[3]"}}, "y f64[]", "  DOT y, a, c\n", ""},
      {"DOT rows", {{"a f64[2,3]"}, {"c f64[2,3]"}}, "y f64[2]", "  DOT y, a, c\n", ""},
      {"DOT itself", {{"a f64[2,3]"}}, "y f64[2]", "  DOT y, a, a\n", ""},
  };
}

std::vector<Case> network_cases() {
  const std::string labels = ".input l i32[3] = 1 3 0\n";
  std::vector<Case> cases{
      {"SOFTMAX", {{"a f64[2,3]"}}, "y f64[2,3]", "  SOFTMAX y, a\n", ""},
      {"SOFTMAX axis", {{"a f64[2,3,2]"}}, "y f64[2,3,2]", "  SOFTMAX y, a, axis=1\n", ""},
      {"LOG_SOFTMAX", {{"a f64[2,3]"}}, "y f64[2,3]", "  LOG_SOFTMAX y, a, axis=0\n", ""},
      {"CROSS_ENTROPY", {{"a f64[3,4]"}}, "y f64[]", "  CROSS_ENTROPY y, a, l\n", labels},
      {"CROSS_ENTROPY sum",
       {{"a f64[3,4]"}},
       "y f64[]",
       "  CROSS_ENTROPY y, a, l, reduction=sum, label_smoothing=0.2\n",
       labels},
      {"CROSS_ENTROPY none",
       {{"a f64[3,4]"}},
       "y f64[3]",
       "  CROSS_ENTROPY y, a, l, reduction=none, ignore_index=3\n",
       labels},
      {"CROSS_ENTROPY ignored", {{"a f64[3,4]"}}, "y f64[]", "  CROSS_ENTROPY y, a, l, ignore_index=3\n", labels},
      {"CROSS_ENTROPY lse", {{"a f64[3,4]"}}, "y f64[3]", "  CROSS_ENTROPY s, a, l, lse=y\n  ADD y, y, s\n", labels},
      {"DROPOUT",
       {{"a f64[20]"}},
       "y f64[20]",
       "  FILL seed, value=3\n  COPY noise, seed\n  DROPOUT y, mask, a, noise, p=0.25\n",
       ".rng noise seed=5\n.local seed i64[2]\n"},
      {"DROPOUT_GRAD", {{"a f64[4]"}}, "y f64[4]", "  DROPOUT_GRAD y, m, a, p=0.25\n", ".input m bool[4] = 1 0 1 1\n"},
  };
  return cases;
}

std::vector<Case> all_cases() {
  std::vector<Case> cases;
  for (const auto& part : {unary_cases(), binary_cases(), reduction_cases(), matmul_cases(), shape_cases(),
                           index_cases(), scan_cases(), network_cases()})
    cases.insert(cases.end(), part.begin(), part.end());
  for (const CaseList list : case_lists()) {
    const std::vector<Case> part = list();
    cases.insert(cases.end(), part.begin(), part.end());
  }
  return cases;
}

class GradientOfOp : public testing::TestWithParam<Case> {};

TEST_P(GradientOfOp, AgreesWithCentralDifferences) {
  const Case& at = GetParam();
  Player player(text_of(at));
  std::mt19937 random(7);
  for (const Source& source : at.sources) {
    const std::string name = first_word(source.declaration);
    player.set(name, random_values(random, static_cast<size_t>(player.machine.find(name)->shape.elements()), source.low,
                                   source.high));
  }
  const std::string result = first_word(at.result);
  const Values upstream =
      random_values(random, static_cast<size_t>(player.machine.find(result)->shape.elements()), -1, 1);
  player.set(result + "_grad", upstream);
  player.run("f");
  player.run("b");
  for (const Source& source : at.sources) {
    const std::string name = first_word(source.declaration);
    const Values got = player.get(name + "_grad");
    expect_near(got, differences(player, "f", name, result, upstream), kSlopeRtol, kSlopeAtol, name);
  }
}

INSTANTIATE_TEST_SUITE_P(Ops, GradientOfOp, testing::ValuesIn(all_cases()), [](const testing::TestParamInfo<Case>& at) {
  std::string name = std::to_string(at.index) + "_";
  for (const char c : at.param.name) name += std::isalnum(static_cast<unsigned char>(c)) != 0 ? c : '_';
  return name;
});

TEST(GradientCoverage, EveryRowWithARuleIsChecked) {
  std::set<std::string> played;
  for (const Case& at : all_cases()) {
    std::string word;
    for (const char c : at.body + "\n") {
      if (std::isspace(static_cast<unsigned char>(c)) == 0) {
        word += c;
      } else {
        played.insert(word);
        word.clear();
      }
    }
  }
  for (const OpInfo& op : kOps)
    if (op.gradient != "NoGradient" && op.gradient != "ZeroGradient") {
      EXPECT_TRUE(played.contains(std::string(op.mnemonic))) << op.mnemonic;
    }
}

}  // namespace
}  // namespace tape::test
