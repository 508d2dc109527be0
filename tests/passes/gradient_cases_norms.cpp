// Gradient cases of losses, CAUSAL_SOFTMAX and norms.
#include "tests/passes/gradient_case.h"

namespace tape::test {
namespace {

std::vector<Case> loss_cases() {
  const std::string labels = ".input l i32[3] = 1 3 0\n";
  std::vector<Case> cases;
  for (const std::string reduction : {"mean", "sum", "none"}) {
    const std::string result = reduction == "none" ? "y f64[2,3]" : "y f64[]", end = ", reduction=" + reduction + "\n";
    const auto add = [&](const std::string& op, double low, double high, const std::string& arguments) {
      cases.push_back({op + " " + reduction + arguments,
                       {{"a f64[2,3]", low, high}, {"c f64[2,3]", low, high}},
                       result,
                       "  " + op + " y, a, c" + arguments + end,
                       ""});
    };
    add("MSE_LOSS", -2, 2, "");
    add("MAE_LOSS", -2, 2, "");
    add("BCE_LOSS", 0.1, 0.9, "");
    add("BCE_LOGITS_LOSS", -3, 3, "");
    add("HUBER_LOSS", -2, 2, "");
    add("HUBER_LOSS", -2, 2, ", delta=0.4");
    cases.push_back({"NLL_LOSS " + reduction,
                     {{"a f64[3,4]"}},
                     reduction == "none" ? "y f64[3]" : "y f64[]",
                     "  NLL_LOSS y, a, l" + end,
                     labels});
  }
  cases.push_back({"NLL_LOSS ignored", {{"a f64[3,4]"}}, "y f64[]", "  NLL_LOSS y, a, l, ignore_index=3\n", labels});
  cases.push_back(
      {"MAE_LOSS of nothing", {{"a f64[0]"}, {"c f64[0]"}}, "y f64[]", "  MAE_LOSS y, a, c, reduction=sum\n", ""});
  return cases;
}

std::vector<Case> norm_cases() {
  std::vector<Case> cases{{"CAUSAL_SOFTMAX", {{"a f64[3,3]"}}, "y f64[3,3]", "  CAUSAL_SOFTMAX y, a\n", ""},
                          {"CAUSAL_SOFTMAX wide", {{"a f64[2,2,4]"}}, "y f64[2,2,4]", "  CAUSAL_SOFTMAX y, a\n", ""}};
  const std::string statistics = ", mean=m, rstd=s";
  for (const std::string& given : {std::string(), statistics}) {
    const std::string name = given.empty() ? "" : " statistics";
    cases.push_back({"LAYER_NORM" + name, {{"a f64[3,5]"}}, "y f64[3,5]", "  LAYER_NORM y, a" + given + "\n", ""});
    cases.push_back({"LAYER_NORM affine" + name,
                     {{"a f64[3,5]"}, {"w f64[5]"}, {"c f64[5]"}},
                     "y f64[3,5]",
                     "  LAYER_NORM y, a, weight=w, bias=c" + given + "\n",
                     ""});
    cases.push_back({"LAYER_NORM axis" + name,
                     {{"a f64[2,3,2]"}, {"w f64[3,2]"}, {"c f64[3,2]"}},
                     "y f64[2,3,2]",
                     "  LAYER_NORM y, a, weight=w, bias=c, axis=1, eps=0.1" + given + "\n",
                     ""});
    cases.push_back({"GROUP_NORM" + name,
                     {{"a f64[2,4,3]"}, {"w f64[4]"}, {"c f64[4]"}},
                     "y f64[2,4,3]",
                     "  GROUP_NORM y, a, groups=2, weight=w, bias=c" + given + "\n",
                     ""});
    cases.push_back({"BATCH_NORM" + name,
                     {{"a f64[3,2,2]"}, {"w f64[2]"}, {"c f64[2]"}},
                     "y f64[3,2,2]",
                     "  BATCH_NORM y, a, rm, rv, training=1, weight=w, bias=c" + given + "\n",
                     ".state rm f64[2]\n.state rv f64[2] = 1 1\n"});
    cases.push_back({"BATCH_NORM running" + name,
                     {{"a f64[3,2,2]"}, {"w f64[2]"}, {"c f64[2]"}, {"d f64[2]"}, {"e f64[2]", 0.5, 2}},
                     "y f64[3,2,2]",
                     "  COPY rm, d\n  COPY rv, e\n  BATCH_NORM y, a, rm, rv, weight=w, bias=c" + given + "\n",
                     ""});
  }
  for (const std::string given : {"", ", rstd=s"}) {
    cases.push_back({"RMS_NORM" + given, {{"a f64[3,5]"}}, "y f64[3,5]", "  RMS_NORM y, a" + given + "\n", ""});
    cases.push_back({"RMS_NORM weight" + given,
                     {{"a f64[2,3,2]"}, {"w f64[3,2]"}},
                     "y f64[2,3,2]",
                     "  RMS_NORM y, a, weight=w, axis=-2, eps=0.1" + given + "\n",
                     ""});
  }
  // The statistics have gradients of their own.
  const std::string sum = "  ADD y, m, s\n  MUL y, y, s\n";
  cases.push_back(
      {"LAYER_NORM of statistics", {{"a f64[3,5]"}}, "y f64[3]", "  LAYER_NORM x, a" + statistics + "\n" + sum, ""});
  cases.push_back({"RMS_NORM of statistics", {{"a f64[3,5]"}}, "y f64[3]", "  RMS_NORM x, a, rstd=y\n", ""});
  cases.push_back({"GROUP_NORM of statistics",
                   {{"a f64[2,4,3]"}},
                   "y f64[2,2]",
                   "  GROUP_NORM x, a, groups=2" + statistics + "\n" + sum,
                   ""});
  cases.push_back({"BATCH_NORM of statistics",
                   {{"a f64[3,2,2]"}},
                   "y f64[2]",
                   "  BATCH_NORM x, a, rm, rv, training=1" + statistics + "\n" + sum,
                   ".state rm f64[2]\n.state rv f64[2] = 1 1\n"});
  cases.push_back({"BATCH_NORM of running statistics",
                   {{"a f64[3,2,2]"}, {"d f64[2]"}, {"e f64[2]", 0.5, 2}},
                   "y f64[2]",
                   "  COPY rm, d\n  COPY rv, e\n  BATCH_NORM x, a, rm, rv, training=1, momentum=0.3\n  MUL y, rm, rv\n",
                   ""});
  cases.push_back({"BATCH_NORM of running statistics left alone",
                   {{"a f64[3,2,2]"}, {"d f64[2]"}, {"e f64[2]", 0.5, 2}},
                   "y f64[2]",
                   "  COPY rm, d\n  COPY rv, e\n  BATCH_NORM x, a, rm, rv" + statistics + "\n  MUL y, rm, rv\n" +
                       "  ADD y, y, m\n  ADD y, y, s\n",
                   ""});
  cases.push_back({"BATCH_NORM twice",
                   {{"a f64[3,2]"}, {"c f64[2]"}},
                   "y f64[3,2]",
                   "  ZERO rm\n  FILL rv, value=1\n  BATCH_NORM x, a, rm, rv, training=1\n  SIN x, x\n  BATCH_NORM y, "
                   "x, rm, rv, bias=c\n",
                   ".local rm f64[2]\n.local rv f64[2]\n"});
  cases.push_back(
      {"LAYER_NORM of no rows", {{"a f64[0,5]"}, {"w f64[5]"}}, "y f64[0,5]", "  LAYER_NORM y, a, weight=w\n", ""});
  return cases;
}

const RegisterCases kLosses{&loss_cases};
const RegisterCases kNorms{&norm_cases};

}  // namespace
}  // namespace tape::test
