#include "tests/passes/gradient_case.h"

namespace tape::test {
namespace {

std::vector<Case> map_cases() {
  std::vector<Case> cases{
      {"MAP chain",
       {{"a f64[2,3]"}, {"w f64[3]"}},
       "y f64[2,3]",
       "  MAP [y], [a, w] {\n    SQUARE t, a\n    MUL u, t, w\n    TANH v, u\n    ADD s, v, t\n    SILU y, s\n  }\n",
       ""},
      {"MAP two results, one unused",
       {{"a f64[2,1]"}, {"w f64[3]"}},
       "y f64[2,3]",
       "  MAP [y, z], [a, w] {\n    EXP t, a\n    ADD z, t, w\n    MUL y, z, t\n  }\n",
       ""},
      {"MAP two results, both used",
       {{"a f64[4]"}},
       "y f64[4]",
       "  MAP [p, q], [a] {\n    SIN p, a\n    MUL q, p, a\n  }\n  MUL y, p, q\n",
       ""},
      {"MAP written twice, acc",
       {{"a f64[3]"}, {"w f64[3]"}},
       "y f64[3]",
       "  MAP [y], [a, w] {\n    MUL t, a, w\n    EXP t, t\n    SQUARE t, a, acc=1\n    COS y, t\n  }\n",
       ""},
      {"MAP where",
       {{"a f64[5]"}, {"w f64[]"}},
       "y f64[5]",
       "  MAP [y], [a, w, m] {\n    RECIP r, w\n    SQUARE s, a\n    GT c, m, 0\n    WHERE y, c, r, s\n  }\n",
       ".input m i32[5] = 1 0 2 -1 3\n"},
      {"MAP narrower than its shape",
       {{"a f64[2,1]"}, {"w f64[3]"}},
       "y f64[2,3]",
       "  MAP [y], [a, w] {\n    SQUARE y, a\n  }\n",
       ""},
      {"MAP a constant",
       {{"a f64[2]"}},
       "y f64[2]",
       "  MAP [y], [a] {\n    FILL k, value=0.5, dtype=f64\n    ATAN2 y, a, k\n  }\n",
       ""},
      {"MAP nothing", {{"a f64[0,2]"}}, "y f64[0,2]", "  MAP [y], [a] {\n    EXP y, a\n  }\n", ""},
  };
  const std::pair<const char*, double> kinds[] = {{"sum", -2}, {"mean", -2}, {"prod", 0.5}, {"max", -2}, {"min", -2}};
  for (const auto& [kind, low] : kinds) {
    const std::string reduce = std::string(", reduce=") + kind;
    cases.push_back({std::string("MAP_REDUCE ") + kind,
                     {{"a f64[3,4]", low}, {"w f64[4]", low}},
                     "y f64[3]",
                     "  MAP_REDUCE [y], [a, w]" + reduce + " {\n    MUL t, a, w\n    TANH y, t\n  }\n",
                     ""});
    cases.push_back(
        {std::string("MAP_REDUCE all kept ") + kind,
         {{"a f64[2,3,2]", low}},
         "y f64[2,1,1]",
         "  MAP_REDUCE [y, z], [a]" + reduce + ", axes=2, keepdims=1 {\n    EXP z, a\n    ADD y, z, a\n  }\n",
         ""});
  }
  cases.push_back({"MAP_REDUCE narrower than its shape",
                   {{"a f64[2,1]", 0.5}, {"w f64[3]"}},
                   "y f64[2]",
                   "  MAP_REDUCE [y], [a, w], reduce=prod {\n    SQRT y, a\n  }\n",
                   ""});
  return cases;
}
const RegisterCases kMap{&map_cases};

}  // namespace
}  // namespace tape::test
