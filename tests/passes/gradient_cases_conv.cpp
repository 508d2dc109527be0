#include "tests/passes/gradient_case.h"

namespace tape::test {
namespace {

std::vector<Case> convolution_cases() {
  struct Form {
    std::string op, a, c, result, arguments, bias;
  };
  const Form forms[] = {
      {"CONV1D", "[2,3,7]", "[4,3,3]", "[2,4,5]", "", "[4]"},
      {"CONV1D", "[1,4,9]", "[2,2,3]", "[1,2,4]", ", stride=2, pad=[2, 1], dilation=2, groups=2", ""},
      {"CONV2D", "[2,2,4,5]", "[3,2,3,2]", "[2,3,2,4]", "", "[3]"},
      {"CONV2D", "[1,4,5,6]", "[2,2,3,2]", "[1,2,3,3]", ", stride=2, pad=[1, 0, 1, 1], groups=2", "[2]"},
      {"CONV2D", "[1,2,6,5]", "[2,1,2,3]", "[1,2,5,3]", ", stride=[1, 2], pad=[1, 2], dilation=[3, 2], groups=2", ""},
      {"CONV2D", "[1,1,5,5]", "[1,1,2,2]", "[1,1,2,2]", ", stride=3", ""},
      {"CONV2D", "[0,2,3,3]", "[2,2,2,2]", "[0,2,2,2]", "", "[2]"},
      {"CONV_TRANSPOSE2D", "[2,2,3,2]", "[2,3,2,3]", "[2,3,4,4]", "", "[3]"},
      {"CONV_TRANSPOSE2D", "[1,4,2,3]", "[4,1,3,2]", "[1,2,4,8]",
       ", stride=[2, 3], pad=[1, 0], output_pad=[1, 0], groups=2", ""},
      {"CONV_TRANSPOSE2D", "[1,1,3,3]", "[1,2,2,2]", "[1,2,4,3]", ", pad=[1, 0, 0, 2], dilation=2", "[2]"},
  };
  std::vector<Case> cases;
  for (const Form& form : forms) {
    Case made{form.op + " " + form.a + form.c + form.arguments,
              {{"a f64" + form.a}, {"c f64" + form.c}},
              "y f64" + form.result,
              "  " + form.op + " y, a, c" + form.arguments + (form.bias.empty() ? "" : ", bias=e") + "\n",
              ""};
    if (!form.bias.empty()) made.sources.push_back({"e f64" + form.bias});
    cases.push_back(made);
  }
  return cases;
}

std::vector<Case> pool_cases() {
  const auto one = [](const std::string& op, const std::string& a, const std::string& result,
                      const std::string& arguments) {
    return Case{
        op + " " + a + arguments, {{"a f64" + a}}, "y f64" + result, "  " + op + " y, a" + arguments + "\n", ""};
  };
  return {
      one("MAX_POOL2D", "[2,2,4,6]", "[2,2,2,3]", ", kernel=2"),
      one("MAX_POOL2D", "[1,2,5,5]", "[1,2,3,3]", ", kernel=3, stride=2, pad=1"),
      one("MAX_POOL2D", "[1,2,5,5]", "[1,2,5,5]", ", kernel=3, stride=1, pad=1, index=at"),
      one("MAX_POOL2D", "[1,1,6,5]", "[1,1,4,3]", ", kernel=[2, 3], stride=1, dilation=[2, 1]"),
      one("AVG_POOL2D", "[2,2,4,6]", "[2,2,2,3]", ", kernel=2"),
      one("AVG_POOL2D", "[1,2,5,5]", "[1,2,3,3]", ", kernel=3, stride=2, pad=1"),
      one("AVG_POOL2D", "[1,2,5,6]", "[1,2,5,6]", ", kernel=[3, 2], stride=1, pad=[1, 0, 1, 1], count_include_pad=0"),
      one("GLOBAL_AVG_POOL", "[2,3,4,2]", "[2,3,1,1]", ""),
      one("GLOBAL_AVG_POOL", "[2,3,5]", "[2,3,1]", ""),
      one("UPSAMPLE_NEAREST2D", "[1,2,2,3]", "[1,2,4,6]", ", scale=2"),
      one("UPSAMPLE_NEAREST2D", "[2,1,2,3]", "[2,1,2,9]", ", scale=[1, 3]")};
}

const RegisterCases kConvolutions{&convolution_cases};
const RegisterCases kPools{&pool_cases};

}  // namespace
}  // namespace tape::test
