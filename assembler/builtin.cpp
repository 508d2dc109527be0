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
    {"std/schedules.tape",
     R"(; Learning rates as commands on the lr tensor, which is declared and of any float dtype. They are played in front of the
; optimizer's CALL, with its step tensor (NAME.t) as step: the updates before this one. So update 1 has the first value
; of a schedule and update `steps` the last, as have all after it. Rates and counts are constants.
.macro warmup lr, base, steps, step           ; base k / steps at update k, base from update `steps` on
  CAST now.${_}, $step, dtype=f64
  ADD  now.${_}, now.${_}, 1
  DIV  now.${_}, now.${_}, ($steps)
  MIN  now.${_}, now.${_}, 1
  MUL  now.${_}, now.${_}, ($base)
  CAST $lr, now.${_}
.endmacro
.macro linear lr, first, last, steps, step    ; a line from first to last
  CAST part.${_}, $step, dtype=f64
  DIV  part.${_}, part.${_}, (max($steps - 1, 1))
  MIN  part.${_}, part.${_}, 1
  MUL  part.${_}, part.${_}, (($last) - ($first))
  ADD  part.${_}, part.${_}, ($first)
  CAST $lr, part.${_}
.endmacro
.macro cosine lr, first, last, steps, step    ; half a cosine from first to last, Loshchilov and Hutter 2017
  CAST part.${_}, $step, dtype=f64
  DIV  part.${_}, part.${_}, (max($steps - 1, 1))
  MIN  part.${_}, part.${_}, 1
  MUL  part.${_}, part.${_}, 3.141592653589793
  COS  part.${_}, part.${_}
  ADD  part.${_}, part.${_}, 1
  MUL  part.${_}, part.${_}, ((($first) - ($last)) / 2.0)
  ADD  part.${_}, part.${_}, ($last)
  CAST $lr, part.${_}
.endmacro
.macro warmup_linear lr, base, last, warm, steps, step  ; rises to base at update `warm`, falls to last at update `steps`
  CAST now.${_}, $step, dtype=f64
  ADD  now.${_}, now.${_}, 1
  DIV  rise.${_}, now.${_}, ($warm)
  MIN  rise.${_}, rise.${_}, 1
  SUB  part.${_}, now.${_}, ($warm)
  DIV  part.${_}, part.${_}, (max(($steps) - ($warm), 1))
  MAX  part.${_}, part.${_}, 0
  MIN  part.${_}, part.${_}, 1
  MUL  part.${_}, part.${_}, (($last) - ($base))
  ADD  part.${_}, part.${_}, ($base)
  MUL  part.${_}, part.${_}, rise.${_}
  CAST $lr, part.${_}
.endmacro
.macro warmup_cosine lr, base, last, warm, steps, step  ; the same, falling along half a cosine
  CAST now.${_}, $step, dtype=f64
  ADD  now.${_}, now.${_}, 1
  DIV  rise.${_}, now.${_}, ($warm)
  MIN  rise.${_}, rise.${_}, 1
  SUB  part.${_}, now.${_}, ($warm)
  DIV  part.${_}, part.${_}, (max(($steps) - ($warm), 1))
  MAX  part.${_}, part.${_}, 0
  MIN  part.${_}, part.${_}, 1
  MUL  part.${_}, part.${_}, 3.141592653589793
  COS  part.${_}, part.${_}
  ADD  part.${_}, part.${_}, 1
  MUL  part.${_}, part.${_}, ((($base) - ($last)) / 2.0)
  ADD  part.${_}, part.${_}, ($last)
  MUL  part.${_}, part.${_}, rise.${_}
  CAST $lr, part.${_}
.endmacro
.macro staircase lr, base, factor, every, step  ; times factor behind every `every` updates
  FLOOR_DIV stair.${_}, $step, ($every)
  CAST now.${_}, stair.${_}, dtype=f64
  FILL fall.${_}, value=($factor), shape=[], dtype=f64
  POW  fall.${_}, fall.${_}, now.${_}
  MUL  fall.${_}, fall.${_}, ($base)
  CAST $lr, fall.${_}
.endmacro
.macro multi_step lr, base, factor, milestones, step  ; times factor behind each of the updates in milestones, an i64[n]
  LE   hit.${_}, $milestones, $step
  CAST hits.${_}, hit.${_}, dtype=f64
  SUM  now.${_}, hits.${_}
  FILL fall.${_}, value=($factor), shape=[], dtype=f64
  POW  fall.${_}, fall.${_}, now.${_}
  MUL  fall.${_}, fall.${_}, ($base)
  CAST $lr, fall.${_}
.endmacro
.macro inverse_sqrt lr, base, warm, step      ; base min(k / warm, sqrt(warm / k)) at update k, Vaswani et al. 2017
  CAST  rise.${_}, $step, dtype=f64
  ADD   rise.${_}, rise.${_}, 1
  DIV   rise.${_}, rise.${_}, ($warm)
  RSQRT fall.${_}, rise.${_}
  MIN   rise.${_}, rise.${_}, fall.${_}
  MUL   rise.${_}, rise.${_}, ($base)
  CAST  $lr, rise.${_}
.endmacro
)"},
    {"std/averages.tape",
     R"(; Averages of weights, played behind the optimizer's CALL, with its step tensor (NAME.t) as step.
.macro ema average, value, decay, step        ; value at update 1, then decay average + (1 - decay) value
  SUB   change.${_}, $value, $average
  MUL   change.${_}, change.${_}, (1 - ($decay))
  ADD   change.${_}, change.${_}, $average
  LE    first.${_}, $step, 1
  WHERE $average, first.${_}, $value, change.${_}
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
