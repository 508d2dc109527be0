// Files of `.include <std/...>`, built in so that one binary is enough.
#include <iterator>

#include "assembler/preprocess.h"

namespace tape::text {
namespace {

struct Builtin {
  std::string_view name, text;
};

constexpr Builtin kBuiltins[] = {
    {"std/layers.tape", R"(; Layers as macros: the destination first, then what it is computed from.
.macro dense out, in, weight, bias            ; out = in @ weight + bias
  MATMUL $out, $in, $weight
  ADD    $out, $out, $bias
.endmacro
.macro dense_relu out, in, weight, bias       ; out = relu(in @ weight + bias)
  MATMUL dense.${_}, $in, $weight
  ADD    dense.${_}, dense.${_}, $bias
  RELU   $out, dense.${_}
.endmacro
.macro standardize out, in, epsilon           ; zero mean and unit variance along the last axis
  MEAN  mean.${_}, $in, axes=-1, keepdims=1
  VAR   var.${_}, $in, axes=-1, keepdims=1
  ADD   var.${_}, var.${_}, $epsilon
  RSQRT var.${_}, var.${_}
  SUB   $out, $in, mean.${_}
  MUL   $out, $out, var.${_}
.endmacro
)"},
    {"std/schedules.tape", R"(; Learning rates as commands on the lr tensor; step is an i64[] tensor that counts from 1.
.macro warmup lr, base, steps, step           ; lr = base * min(1, step / steps)
  CAST warm.${_}, $step, dtype=f32
  DIV  warm.${_}, warm.${_}, $steps
  MIN  warm.${_}, warm.${_}, 1
  MUL  $lr, warm.${_}, $base
.endmacro
.macro inverse_sqrt lr, base, warm, step      ; lr = base * min(step / warm, sqrt(warm / step)), Vaswani et al. 2017
  CAST  now.${_}, $step, dtype=f32
  DIV   rise.${_}, now.${_}, $warm
  RSQRT fall.${_}, rise.${_}
  MIN   rise.${_}, rise.${_}, fall.${_}
  MUL   $lr, rise.${_}, $base
.endmacro
)"},
};

}  // namespace

const std::string_view* find_builtin(std::string_view name) {
  for (const Builtin& builtin : kBuiltins)
    if (builtin.name == name) return &builtin.text;
  return nullptr;
}

std::vector<std::string_view> builtin_names() {
  std::vector<std::string_view> names;
  for (const Builtin& builtin : kBuiltins) names.push_back(builtin.name);
  return names;
}

}  // namespace tape::text
