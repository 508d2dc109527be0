#include "vm/passes/gradient_rules.h"

namespace tape::gradient_rules {
void Map(Rule&) {}
void MapReduce(Rule&) {}
}
