// The cases of the gradient check, family by family: every file of cases registers its list, the test plays them all.
#pragma once

#include <string>
#include <vector>

namespace tape::test {

struct Source {
  std::string declaration;  // "a f64[2,3]"
  double low = -2, high = 2;
};
struct Case {
  std::string name;
  std::vector<Source> sources;  // parameters, differentiated
  std::string result;           // "y f64[2,3]"
  std::string body;
  std::string more;  // further declarations
};

using CaseList = std::vector<Case> (*)();
inline std::vector<CaseList>& case_lists() {
  static std::vector<CaseList> lists;
  return lists;
}
/// `const RegisterCases kName{&cases};` at namespace scope adds a list.
struct RegisterCases {
  explicit RegisterCases(CaseList list) { case_lists().push_back(list); }
};

}  // namespace tape::test
