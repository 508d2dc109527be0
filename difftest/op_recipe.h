// What the files of recipes share. Private to difftest/.
#pragma once

#include <vector>

#include "difftest/op_sketch.h"

namespace tape::difftest {

using List = std::vector<int64_t>;

/// A row, its dtype and the varying dimension; recipes add sketches.
struct Recipe {
  const OpInfo& op;
  DType dtype;
  int64_t n;
  std::vector<Sketch> out{};

  Sketch& add() { return out.emplace_back(op); }
  [[nodiscard]] bool large() const { return n == 1025; }
  /// n where it is a middle size, so that ranks of 6 stay small.
  [[nodiscard]] int64_t few() const { return n <= 33 ? n : 7; }
  [[nodiscard]] bool has(std::string_view attribute) const { return op.attribute(attribute) >= 0; }
};

// op_recipes_network.cpp
void matmul_recipe(Recipe& r);
void dot_recipe(Recipe& r);
void cross_entropy_recipe(Recipe& r);
void loss_recipe(Recipe& r);
void norm_recipe(Recipe& r);
void group_norm_recipe(Recipe& r);
void batch_norm_recipe(Recipe& r);
void conv_recipe(Recipe& r);
void conv_transpose_recipe(Recipe& r);
void pool_recipe(Recipe& r);
void rope_recipe(Recipe& r);
void attention_recipe(Recipe& r);
void cell_recipe(Recipe& r, int64_t parts);
void optimizer_recipe(Recipe& r);
void map_recipe(Recipe& r, bool reduces);

}  // namespace tape::difftest
