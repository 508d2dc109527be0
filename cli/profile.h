// What --profile prints: where the time of a tape went, by command and source line.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "vm/plan.h"
#include "vm/profile.h"

namespace tape::cli {

[[nodiscard]] std::string profile_text(const Profile& profile, const Plan& plan, const Capabilities& capabilities,
                                       uint64_t runs);
[[nodiscard]] nlohmann::json profile_json(const Profile& profile, const Plan& plan, const Capabilities& capabilities,
                                          uint64_t runs);

}  // namespace tape::cli
