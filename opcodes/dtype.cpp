// Text of dtype sets, for messages and the op reference.
#include "opcodes/dtype.h"

namespace tape {

std::string DTypeSet::text() const {
  std::string result;
  for (const DTypeInfo& info : kDTypes) {
    if (!has(info.dtype)) continue;
    if (!result.empty()) result += ' ';
    result += info.name;
  }
  return result;
}

}  // namespace tape
