#include "tests/passes/gradient_case.h"

namespace tape::test {
namespace {

std::vector<Case> attention_cases() {
  const std::string positions = ".input p i32[3] = 0 5 2\n", one = ".input p i64[] = 3\n";
  std::vector<Case> cases{
      {"ROPE", {{"a f64[2,3,4]"}}, "y f64[2,3,4]", "  ROPE y, a, p\n", positions},
      {"ROPE half", {{"a f64[3,6]"}}, "y f64[3,6]", "  ROPE y, a, p, style=half, base=100\n", positions},
      {"ROPE inverse", {{"a f64[2,4]"}}, "y f64[2,4]", "  ROPE y, a, p, inverse=1\n", one},
  };
  struct Form {
    std::string name, q, k, v, y, arguments, more;
  };
  const Form forms[] = {
      {"", "[2,2,3,4]", "[2,2,5,4]", "[2,2,5,3]", "[2,2,3,3]", "", ""},
      {"causal", "[2,4,2]", "[2,4,2]", "[2,4,2]", "[2,4,2]", ", causal=1", ""},
      {"groups", "[1,4,3,2]", "[1,2,3,2]", "[1,2,3,2]", "[1,4,3,2]", ", causal=1, scale=0.5", ""},
      {"blind rows", "[5,2]", "[3,2]", "[3,2]", "[5,2]", ", causal=1", ""},
      {"lengths", "[3,1,2,2]", "[3,1,4,2]", "[3,1,4,2]", "[3,1,2,2]", ", kv_len=n", ".input n i32[3] = 2 0 4\n"},
      {"length", "[2,3,2]", "[1,4,2]", "[1,4,2]", "[2,3,2]", ", kv_len=n, causal=1", ".input n i64[] = 3\n"},
      {"no keys", "[2,2]", "[0,2]", "[0,2]", "[2,2]", "", ""},
      {"saved lse", "[2,3,2]", "[2,4,2]", "[2,4,3]", "[2,3,3]", ", lse=s", ""},
  };
  for (const Form& form : forms)
    cases.push_back({"ATTENTION " + form.name,
                     {{"q f64" + form.q}, {"k f64" + form.k}, {"v f64" + form.v}},
                     "y f64" + form.y,
                     "  ATTENTION y, q, k, v" + form.arguments + "\n",
                     form.more});
  cases.push_back({"ATTENTION lse",
                   {{"q f64[2,3,2]"}, {"k f64[1,4,2]"}, {"v f64[1,4,3]"}},
                   "y f64[2,3]",
                   "  ATTENTION a, q, k, v, lse=y, causal=1\n",
                   ""});
  cases.push_back({"ATTENTION and lse",
                   {{"q f64[3,2]"}, {"k f64[4,2]"}, {"v f64[4,1]"}},
                   "y f64[3]",
                   "  ATTENTION a, q, k, v, lse=s\n  SUM y, a, axes=-1\n  MUL y, y, s\n",
                   ""});
  cases.push_back({"ATTENTION of itself", {{"a f64[4,3]"}}, "y f64[4,3]", "  ATTENTION y, a, a, a, causal=1\n", ""});
  return cases;
}
const RegisterCases kAttention{&attention_cases};

}  // namespace
}  // namespace tape::test
