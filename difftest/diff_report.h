// A comparison of two backends as text and as JSON.
#pragma once

#include <nlohmann/json.hpp>
#include <string>

#include "difftest/diff.h"

namespace tape {

/// `explain`: every command with its errors and the bound it was held to; else the first bad one alone.
[[nodiscard]] std::string diff_text(const DiffReport& report, bool explain);
/// Schema "tape.diff/1": fields are added, none changes its meaning. Numbers that are not finite are null.
[[nodiscard]] nlohmann::json diff_json(const DiffReport& report);

}  // namespace tape
