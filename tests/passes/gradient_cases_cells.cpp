#include "tests/passes/gradient_case.h"

namespace tape::test {
namespace {

std::vector<Case> cell_cases() {
  const std::vector<Source> lstm{{"x f64[2,3]"}, {"p f64[2,2]"}, {"q f64[2,2]"}, {"a f64[8,3]"},
                                 {"c f64[8,2]"}, {"d f64[8]"},   {"e f64[8]"}};
  const std::vector<Source> gru{{"x f64[2,3]"}, {"p f64[2,2]"}, {"a f64[6,3]"},
                                {"c f64[6,2]"}, {"d f64[6]"},   {"e f64[6]"}};
  const std::string biases = ", bias_ih=d, bias_hh=e";
  return {
      {"LSTM_CELL", lstm, "y f64[2,2]", "  LSTM_CELL h, s, x, p, q, a, c" + biases + "\n  MUL y, h, s\n", ""},
      {"LSTM_CELL gates", lstm, "y f64[2,2]", "  LSTM_CELL y, s, x, p, q, a, c" + biases + ", gates=g\n", ""},
      {"LSTM_CELL state", lstm, "y f64[2,2]", "  LSTM_CELL h, y, x, p, q, a, c" + biases + "\n", ""},
      {"LSTM_CELL without biases",
       {lstm.begin(), lstm.begin() + 5},
       "y f64[2,2]",
       "  LSTM_CELL h, s, x, p, q, a, c\n  ADD y, h, s\n",
       ""},
      {"LSTM_CELL twice", lstm, "y f64[2,2]",
       "  LSTM_CELL h, s, x, p, q, a, c" + biases + "\n  LSTM_CELL y, z, x, h, s, a, c" + biases + "\n", ""},
      {"GRU_CELL", gru, "y f64[2,2]", "  GRU_CELL y, x, p, a, c" + biases + "\n", ""},
      {"GRU_CELL gates", gru, "y f64[2,2]", "  GRU_CELL y, x, p, a, c" + biases + ", gates=g\n", ""},
      {"GRU_CELL one bias", {gru.begin(), gru.begin() + 5}, "y f64[2,2]", "  GRU_CELL y, x, p, a, c, bias_ih=d\n", ""},
      {"GRU_CELL twice", gru, "y f64[2,2]",
       "  GRU_CELL h, x, p, a, c" + biases + "\n  GRU_CELL y, x, h, a, c" + biases + "\n", ""},
  };
}
const RegisterCases kCells{&cell_cases};

std::vector<Case> epilogue_cases() {
  std::vector<Case> cases;
  for (const std::string act : {"none", "relu", "gelu", "gelu_tanh", "silu", "sigmoid", "tanh"})
    for (const std::string aux : {"", ", aux=z"})
      cases.push_back({"MATMUL " + act + aux,
                       {{"a f64[2,3]"}, {"c f64[3,4]"}, {"d f64[4]"}},
                       "y f64[2,4]",
                       "  MATMUL y, a, c, bias=d" + aux + (act == "none" ? "" : ", act=" + act) + "\n",
                       ""});
  cases.push_back({"MATMUL aux used",
                   {{"a f64[2,3]"}, {"c f64[3,4]"}, {"d f64[4]"}},
                   "y f64[2,4]",
                   "  MATMUL s, a, c, bias=d, aux=z, act=silu\n  MUL y, s, z\n",
                   ""});
  cases.push_back(
      {"MATMUL aux alone", {{"a f64[2,3]"}, {"c f64[3,4]"}}, "y f64[2,4]", "  MATMUL s, a, c, aux=y, act=relu\n", ""});
  cases.push_back({"MATMUL bias of batches",
                   {{"a f64[2,2,3]"}, {"c f64[2,4,3]"}, {"d f64[4]"}},
                   "y f64[2,2,4]",
                   "  MATMUL y, a, c, bias=d, trans_b=1, alpha=0.5, act=tanh\n",
                   ""});
  cases.push_back({"MATMUL bias of a row",
                   {{"a f64[3]"}, {"c f64[3,4]"}, {"d f64[4]"}},
                   "y f64[4]",
                   "  MATMUL y, a, c, bias=d, act=gelu\n",
                   ""});
  cases.push_back({"MATMUL bias acc",
                   {{"a f64[2,3]"}, {"c f64[3,4]"}, {"d f64[4]"}, {"e f64[2,4]"}},
                   "y f64[2,4]",
                   "  SIN y, e\n  MATMUL y, a, c, bias=d, acc=1\n",
                   ""});
  return cases;
}
const RegisterCases kEpilogue{&epilogue_cases};

}  // namespace
}  // namespace tape::test
