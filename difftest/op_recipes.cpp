// Shapes and attributes for every shape rule. `n` is the varying dimension: 0, 1, 31, 32, 33, 255, 1025. What the table
// says (dtypes, optional operands, enums, flags, numbers with a range) is varied for all rows alike in vary(); what a
// row wants beyond that stands here. A new shape rule does not compile until it has a recipe.
#include <fmt/format.h>

#include <algorithm>

#include "difftest/op_recipe.h"
#include "opcodes/infer.h"
#include "vm/error.h"

namespace tape::difftest {
namespace {

// ---- elementwise and moves ----

void same_recipe(Recipe& r) {
  std::vector<std::string_view> sources;
  for (const Operand& operand : r.op.operands())
    if (operand.access == Access::Read) sources.push_back(operand.name);
  std::vector<Shape> shapes{{r.n}, {3, r.n}, {2, 1, 3, 1, 2, r.few()}};
  if (r.n == 1) shapes.push_back({});
  const auto put = [&](const Shape& shape) -> Sketch& {
    Sketch& sketch = r.add();
    for (const std::string_view source : sources) sketch.put(source, shape);
    return sketch;
  };
  const bool casts = r.op.operands()[0].type == TypeRule::Any;
  for (const Shape& shape : shapes) {
    if (!casts) put(shape);
    for (const DTypeInfo& to : kDTypes)
      if (casts) put(shape).give("dst").dtype("dst", to.dtype);
  }
  if (r.op.has(kInPlace)) put({r.n}).in_place = true;
}

void broadcast_recipe(Recipe& r) {
  std::vector<std::string_view> sources;
  bool immediate = false;
  for (const Operand& operand : r.op.operands()) {
    if (operand.access == Access::Read) sources.push_back(operand.name);
    immediate = immediate || operand.kind == OperandKind::Immediate;
  }
  // Integer divisors are not zero, exponents not negative, but for the inputs that are all edges.
  const bool guards = r.op.has(kFaultEffect) && !is_float(r.dtype);
  const Fill second = !guards ? Fill{} : r.op.bits == Bits::Functor ? range(0, 5) : Fill{Fill::Kind::NonZero, 0, 0, {}};
  const auto put = [&](const std::vector<Shape>& shapes) -> Sketch& {
    Sketch& sketch = r.add();
    for (size_t i = 0; i < sources.size(); ++i)
      sketch.put(sources[i], shapes[i % shapes.size()], i == 1 && immediate ? second : Fill{});
    return sketch;
  };
  put({{r.n}, {r.n}, {r.n}});
  put({{3, r.n}, {r.n}, {3, 1}});
  put({{r.n, 1}, {1, 5}, {r.n, 5}});
  put({{}, {r.n}, {}});
  put({{2, 1, 3, 1, 2, r.few()}, {1, 2, 1, 3, 2, 1}, {r.few()}});
  if (r.n == 1) put({{}, {}, {}});
  if (immediate && r.dtype != DType::Bool) {
    if (is_float(r.dtype))
      put({{r.n}}).set("imm", 2.5).operands.erase("b");
    else
      put({{r.n}}).set("imm", int64_t{3}).operands.erase("b");
  }
  if (r.op.has(kInPlace)) put({{r.n}, {r.n}, {r.n}}).in_place = true;
}

void list_recipe(Recipe& r) {
  const Operand& operand = r.op.operands()[0];
  r.add().list(operand.name, {{r.n}, {}, {3, r.n}});
  r.add().list(operand.name, {{r.n}});
}

void close_recipe(Recipe& r) {
  r.add().put("a", {r.n}).put("b", {r.n}, {Fill::Kind::Same, 0, 0, "a"});
  r.add().put("a", {3, r.n}).put("b", {3, r.n});
}

void free_recipe(Recipe& r) {
  std::vector<Shape> shapes{{r.n}, {r.n, 3}, {2, 3, r.few(), 2}};
  for (const Shape& shape : shapes) {
    r.add().put("dst", shape);
    if (r.has("axis")) r.add().put("dst", shape).set("axis", int64_t{-1});
  }
  if (r.n == 1 && !r.has("axis")) r.add().put("dst", {});
}

void reshape_recipe(Recipe& r) {
  r.add().put("dst", {2, r.n, 3}).put("src", {r.n, 6});
  r.add().put("dst", {1, r.n, 1, 1}).put("src", {r.n});
  if (r.n == 1) r.add().put("dst", {}).put("src", {1, 1});
}

void transpose_recipe(Recipe& r) {
  r.add().put("src", {3, r.n});
  r.add().put("src", {r.n, 33}).set("perm", List{1, 0});
  r.add().put("src", {2, r.n, 3}).set("perm", List{0, 2, 1});
  r.add().put("src", {r.few(), 3, 2, 5}).set("perm", List{2, 0, 3, 1});
  r.add().put("src", {2, 1, 3, 2, 2, r.few()}).set("perm", List{5, 0, 4, 1, 3, 2});
  r.add().put("src", {r.n});
  if (r.n == 1) r.add().put("src", {});
}

void broadcast_to_recipe(Recipe& r) {
  r.add().put("dst", {3, r.n}).put("src", {r.n});
  r.add().put("dst", {r.n, 5}).put("src", {r.n, 1});
  r.add().put("dst", {r.n}).put("src", {});
  r.add().put("dst", {2, r.n, 3, 2, 1, 2}).put("src", {1, r.n, 1, 2, 1, 1});
}

void concat_recipe(Recipe& r) {
  r.add().list("src", {{r.n}, {3}, {0}, {r.n}});
  r.add().list("src", {{3, r.n}, {3, 5}}).set("axis", int64_t{-1});
  r.add().list("src", {{2, r.n, 3}, {2, 1, 3}, {2, r.n, 3}}).set("axis", int64_t{1});
}

void split_recipe(Recipe& r) {
  const int64_t part = r.n / 3;
  r.add().list("dst", {{part, 4}, {0, 4}, {r.n - part, 4}}).put("src", {r.n, 4});
  r.add().list("dst", {{3, r.n - part}, {3, part}}).put("src", {3, r.n}).set("axis", int64_t{-1});
}

void slice_recipe(Recipe& r) {
  const int64_t from = r.n / 4, to = r.n - r.n / 5;
  r.add().put("src", {r.n, 5}).set("start", List{from}).set("stop", List{to});
  r.add().put("src", {r.n, 5}).set("start", List{from, 1}).set("stop", List{to, 5}).set("step", List{2, 3});
  r.add().put("src", {3, 2, r.n}).set("start", List{0, 1, 0}).set("stop", List{3, 2, r.n}).set("step", List{1, 1, 3});
  Sketch& negative = r.add().put("src", {r.n}).set("start", List{-1}).set("stop", List{r.n});
  negative.maybe = r.n == 0;
}

void pad_recipe(Recipe& r) {
  r.add().put("src", {r.n, 3}).set("low", List{2, 1}).set("high", List{0, 2});
  Sketch& value = r.add().put("src", {2, r.n}).set("low", List{0, 5}).set("high", List{1, 3});
  if (r.has("value")) {
    if (is_float(r.dtype))
      value.set("value", -1.5);
    else
      value.set("value", int64_t{1});
  }
  for (const int64_t mode : {1, 2}) {
    Sketch& sketch = r.add().put("src", {3, r.n}).set("mode", mode).set("low", List{1, 3}).set("high", List{2, 4});
    sketch.maybe = r.n < 5;
    Sketch& whole = r.add().put("src", {r.n}).set("mode", mode);
    whole.set("low", List{std::max<int64_t>(r.n - 1, 0)}).set("high", List{r.n / 2}).maybe = r.n < 3;
  }
}

void flip_recipe(Recipe& r) {
  r.add().put("src", {r.n, 3});
  r.add().put("src", {3, r.n}).set("axes", List{-1});
  r.add().put("src", {2, r.few(), 3, 2}).set("axes", List{0, 2});
}

void dynamic_slice_recipe(Recipe& r) {
  const int64_t part = (r.n + 1) / 2;
  const auto starts = [&](Sketch& s, std::vector<Shape> shapes, double most) -> Sketch& {
    return s.list("start", std::move(shapes), range(0, most));
  };
  const auto room = static_cast<double>(r.n - part);
  starts(r.add().put("dst", {part, 3}).put("src", {r.n, 3}), {{}}, room);
  starts(r.add().put("dst", {1, part}).put("src", {2, r.n}), {{}, {}}, std::min(room, 1.0)).wide_index = true;
  starts(r.add().put("dst", {r.n}).put("src", {r.n}), {{}}, 0);
  r.add().put("dst", {part, 3}).put("src", {r.n, 3}).list("start", {{}}, range(room + 1, room + 3));  // a fault
}

void dynamic_update_recipe(Recipe& r) {
  dynamic_slice_recipe(r);
  for (Sketch& sketch : r.out) std::swap(sketch.operands["dst"], sketch.operands["src"]);
}

// ---- indices ----

/// Every policy for indices out of range: fault with and without one, zero, clip.
void with_indices(Recipe& r, const Sketch& base, int64_t size, std::string_view index = "idx") {
  for (const int64_t oob : {0, 1, 2}) {
    Sketch sketch = base;
    sketch.set("oob", oob);
    SketchOperand& operand = sketch.operands.find(index)->second;
    const bool empty = size == 0 && oob == 0;
    operand.fill = oob == 0 ? index_of(size) : range(-2, static_cast<double>(size + 1));
    if (!empty) r.out.push_back(sketch);
    if (oob != 0 || r.n != 33) continue;
    operand.fill = range(-1, static_cast<double>(size));
    r.out.push_back(std::move(sketch));
  }
}

void gather_recipe(Recipe& r) {
  with_indices(r, Sketch(r.op).put("src", {r.n, 5}).put("idx", {7}), r.n);
  with_indices(r, Sketch(r.op).put("src", {5, 3}).put("idx", {r.n}), 5);
  Sketch last = Sketch(r.op).put("src", {2, 9}).put("idx", {3, r.n}).set("axis", int64_t{-1});
  last.wide_index = true;
  with_indices(r, last, 9);
  with_indices(r, Sketch(r.op).put("src", {2, r.n, 3}).put("idx", {}).set("axis", int64_t{1}), r.n);
}

void scatter_recipe(Recipe& r) {
  const auto add = [&](const Shape& dst, const Shape& idx, const Shape& src, int64_t axis, bool wide) {
    Sketch sketch(r.op);
    sketch.put("dst", dst).put("idx", idx).put("src", src).set("axis", axis);
    sketch.wide_index = wide;
    with_indices(r, sketch, dst[static_cast<int>(axis < 0 ? axis + dst.rank() : axis)]);
  };
  add({5, 3}, {r.n}, {r.n, 3}, 0, false);
  add({r.n, 3}, {9}, {9, 3}, 0, true);
  add({2, 7}, {3, r.n}, {2, 3, r.n}, -1, false);
  add({2, r.n, 3}, {}, {2, 3}, 1, false);
}

void take_along_recipe(Recipe& r) {
  const auto add = [&](const Shape& src, const Shape& idx, int64_t axis, bool wide) {
    Sketch sketch(r.op);
    sketch.put("src", src).put("idx", idx).set("axis", axis);
    sketch.wide_index = wide;
    with_indices(r, sketch, src[static_cast<int>(axis < 0 ? axis + src.rank() : axis)]);
  };
  add({3, r.n}, {3, 5}, -1, false);
  add({3, 6}, {3, r.n}, -1, true);
  add({r.n, 2, 3}, {4, 2, 3}, 0, false);
  add({2, r.n, 3}, {2, r.n, 3}, 1, false);
}

void one_hot_recipe(Recipe& r) {
  with_indices(r, Sketch(r.op).put("dst", {r.n, 7}).put("idx", {r.n}), 7);
  with_indices(r, Sketch(r.op).put("dst", {2, 3, r.n}).put("idx", {2, 3}), r.n);
  with_indices(r, Sketch(r.op).put("dst", {r.n}).put("idx", {}), r.n);
}

void triangle_recipe(Recipe& r) {
  r.add().put("src", {r.n, 5});
  r.add().put("src", {2, 3, r.few(), r.few()}).set("diagonal", int64_t{1});
  Sketch& value = r.add().put("src", {7, r.n}).set("diagonal", int64_t{-2}).set("keep", int64_t{1});
  if (is_float(r.dtype))
    value.set("value", -2.5);
  else
    value.set("value", int64_t{1});
}

// ---- reductions, scans, sorts ----

void reduce_recipe(Recipe& r) {
  const auto add = [&](const Shape& shape, List axes, bool keep) {
    Sketch& sketch = r.add().put("src", shape);
    sketch.maybe = r.n == 0;
    if (!axes.empty()) sketch.set("axes", std::move(axes));
    if (keep) sketch.set("keepdims", int64_t{1});
  };
  add({r.n}, {}, false);
  add({3, r.n}, {-1}, true);
  add({r.n, 5}, {0}, false);
  add({2, r.n, 3}, {1}, true);
  add({2, r.few(), 3, 4}, {0, 2}, false);
  add({2, 3, 1, 2, 2, r.few()}, {1, 3, -1}, true);
  add({3, r.few()}, {}, true);
  if (r.n == 1) add({}, {}, false);
  if (r.large()) add({65536 + 33}, {}, false);
}

void arg_reduce_recipe(Recipe& r) {
  r.add().put("src", {r.n}).maybe = r.n == 0;
  r.add().put("src", {3, r.n}).set("axis", int64_t{-1}).set("keepdims", int64_t{1}).maybe = r.n == 0;
  Sketch& wide = r.add().put("src", {2, r.n, 3}).set("axis", int64_t{1});
  wide.maybe = r.n == 0;
  wide.wide_index = true;
}

void axis_recipe(Recipe& r) {
  std::vector<std::string_view> sources;
  for (const Operand& operand : r.op.operands())
    if (operand.access == Access::Read) sources.push_back(operand.name);
  const auto add = [&](const Shape& shape, int64_t axis) -> Sketch& {
    Sketch& sketch = r.add().set("axis", axis);
    for (const std::string_view source : sources) sketch.put(source, shape);
    return sketch;
  };
  add({r.n}, 0);
  add({3, r.n}, -1);
  add({r.n, 5}, 0);
  add({2, r.n, 3}, 1);
  add({2, 1, 2, r.few(), 1, 3}, 3).wide_index = true;
}

void top_k_recipe(Recipe& r) {
  r.add().put("src", {r.n}).set("k", std::min<int64_t>(r.n, 1));
  r.add().put("src", {3, r.n}).set("k", (r.n + 1) / 2);
  Sketch& wide = r.add().put("src", {2, r.n, 3}).set("k", r.n).set("axis", int64_t{1});
  wide.wide_index = true;
}

// ---- gradients ----

/// The row whose gradient this one is; nullptr for a row that is none.
const OpInfo* forward_of(const OpInfo& op) {
  std::string_view name = op.mnemonic;
  if (!name.ends_with("_GRAD") || op.operands()[0].kind == OperandKind::GradList) return nullptr;
  name.remove_suffix(5);
  for (const std::string_view part : {"", "_INPUT", "_WEIGHT"})
    if (name.ends_with(part))
      if (const OpInfo* forward = find_op(name.substr(0, name.size() - part.size()))) return forward;
  return nullptr;
}

std::string_view first_source(const OpInfo& op) {
  for (const Operand& operand : op.operands())
    if (operand.access == Access::Read && operand.type == TypeRule::T) return operand.name;
  return {};
}

/// The operand of the forward whose shape an operand of the gradient has; empty when infer finds it.
std::string_view counterpart(const OpInfo& op, const OpInfo& forward, const Operand& operand) {
  const std::string_view name = operand.name;
  const bool of_weight = op.mnemonic.ends_with("_WEIGHT_GRAD");
  if (name == "dst") return of_weight ? "weight" : first_source(forward);
  if (name == "g" || name == "y") return forward.operands()[0].name;
  if (name == "g_h") return "h";
  if (name == "g_c") return "c";
  return name;
}

Fill gradient_fill(const Operand& operand, const Sketch& forward) {
  if (operand.name == "index") return {Fill::Kind::Window, 0, 0, {}};
  if (operand.name == "rstd" || operand.name == "gates") return range(0.05, 1);
  const auto found = forward.operands.find(operand.name);
  return found == forward.operands.end() ? Fill{} : found->second.fill;
}

void gradient_recipe(Recipe& r, const OpInfo& forward) {
  for (const Sketch& sketch : sketches_of(forward, r.dtype, r.n)) {
    if (sketch.attributes.has_attr("acc") || sketch.in_place) continue;
    std::string reason;
    const auto shapes = resolve(sketch, r.dtype, reason);
    if (!shapes) continue;
    Sketch& made = r.add();
    made.maybe = true;  // what the forward takes without, some gradients do not (statistics that are not given)
    made.wide = sketch.wide;
    made.wide_index = sketch.wide_index;
    for (size_t i = 0; i < forward.attributes().size(); ++i)
      if (const int at = r.op.attribute(forward.attributes()[i].name); at >= 0)
        made.attributes.attrs[static_cast<size_t>(at)] = sketch.attributes.attrs[i];
    for (const Operand& operand : r.op.operands()) {
      const auto found = shapes->find(counterpart(r.op, forward, operand));
      const bool inferred = operand.access == Access::Write && operand.name != "dst";
      if (found == shapes->end() || inferred) continue;
      made.list(operand.name, found->second, gradient_fill(operand, sketch));
    }
  }
}

// ---- what the table says ----

bool fits(const Sketch& sketch, DType dtype) {
  std::string reason;
  return resolve(sketch, dtype, reason).has_value();
}

/// The first sketches again with every flag, enum and number that they leave at its default, wide destinations, i64
/// indices, and acc=1.
void vary(Recipe& r) {
  if (r.out.empty()) return;
  std::vector<Sketch> more;
  const Sketch base = r.out.size() > 1 ? r.out[1] : r.out[0];
  const auto keep = [&](Sketch sketch) {
    if (fits(sketch, r.dtype)) more.push_back(std::move(sketch));
  };
  for (const Attribute& attribute : r.op.attributes()) {
    if (base.attributes.has_attr(attribute.name)) continue;
    Sketch sketch = base;
    switch (attribute.type) {
      case AttrType::Bool:
        keep(sketch.set(attribute.name, static_cast<int64_t>(attribute.fallback == 0 ? 1 : 0)));
        break;
      case AttrType::Enum:
        for (int64_t i = 0; i <= std::count(attribute.choices.begin(), attribute.choices.end(), '|'); ++i)
          if (i != static_cast<int64_t>(attribute.fallback)) keep(sketch.set(attribute.name, i));
        break;
      case AttrType::F64:
        keep(sketch.set(attribute.name, attribute.fallback == 0.5 ? 0.25 : 0.5));
        break;
      case AttrType::Number:
        if (attribute.name == "imm") break;
        if (is_float(r.dtype))
          keep(sketch.set(attribute.name, attribute.name == "lo" ? -0.75 : 1.25));
        else
          keep(sketch.set(attribute.name, attribute.name == "lo" ? int64_t{1} : int64_t{5}));
        break;
      case AttrType::I64:
        if (!attribute.required) keep(sketch.set(attribute.name, int64_t{2}));
        break;
      case AttrType::I32:
      case AttrType::IntList:
      case AttrType::String:
      case AttrType::Body:
        break;
    }
  }
  Sketch both = base;
  if (r.has("lo") && r.has("hi") && is_float(r.dtype)) keep(both.set("lo", -0.5).set("hi", 0.75));
  bool wide = false, index = false;
  for (const Operand& operand : r.op.operands()) {
    wide = wide || operand.type == TypeRule::Wide || operand.type == TypeRule::EachGrad;
    index = index || operand.type == TypeRule::Index || operand.type == TypeRule::IndexOut;
  }
  for (size_t i = 0; i < std::min<size_t>(r.out.size(), 4) && wide && is_half(r.dtype); ++i) {
    Sketch sketch = r.out[i];
    sketch.wide = true;
    keep(sketch);
    if (r.has("acc")) keep(sketch.set("acc", int64_t{1}));
  }
  for (size_t i = 2; i < std::min<size_t>(r.out.size(), 4) && r.has("acc"); ++i) {
    Sketch sketch = r.out[i];
    sketch.in_place = false;
    keep(sketch.set("acc", int64_t{1}));
  }
  if (index) {
    Sketch sketch = base;
    sketch.wide_index = !sketch.wide_index;
    keep(std::move(sketch));
  }
  r.out.insert(r.out.end(), more.begin(), more.end());
}

/// Attributes that must be given and have no better value.
void require(Recipe& r) {
  for (Sketch& sketch : r.out)
    for (const Attribute& attribute : r.op.attributes()) {
      if (!attribute.required || sketch.attributes.has_attr(attribute.name)) continue;
      if (attribute.type == AttrType::F64) sketch.set(attribute.name, 0.75);
      if (attribute.type == AttrType::Number && is_float(r.dtype)) sketch.set(attribute.name, 2.5);
      if (attribute.type == AttrType::Number && !is_float(r.dtype)) sketch.set(attribute.name, int64_t{1});
    }
}

void by_shape_rule(Recipe& r) {
  switch (r.op.shape) {
    case ShapeRule::None:
      if (!r.op.operands().empty() && is_list(r.op.operands()[0].kind)) list_recipe(r);
      return;
    case ShapeRule::Loop:
    case ShapeRule::Load:
    case ShapeRule::Store:
      return;  // op_cases.cpp
    case ShapeRule::Same:
      return same_recipe(r);
    case ShapeRule::Broadcast:
      return broadcast_recipe(r);
    case ShapeRule::Free:
    case ShapeRule::Rng:
      return free_recipe(r);
    case ShapeRule::Scalar:
      r.add().put(r.op.operands()[0].name, {});
      r.add().put(r.op.operands()[0].name, {}).set("by", int64_t{-5});
      return;
    case ShapeRule::Close:
      return close_recipe(r);
    case ShapeRule::Reshape:
      return reshape_recipe(r);
    case ShapeRule::Transpose:
      return transpose_recipe(r);
    case ShapeRule::BroadcastTo:
      return broadcast_to_recipe(r);
    case ShapeRule::Concat:
      return concat_recipe(r);
    case ShapeRule::Split:
      return split_recipe(r);
    case ShapeRule::Slice:
      return slice_recipe(r);
    case ShapeRule::Pad:
      return pad_recipe(r);
    case ShapeRule::Flip:
      return flip_recipe(r);
    case ShapeRule::DynamicSlice:
      return dynamic_slice_recipe(r);
    case ShapeRule::DynamicUpdateSlice:
      return dynamic_update_recipe(r);
    case ShapeRule::Gather:
      return gather_recipe(r);
    case ShapeRule::ScatterAdd:
      return scatter_recipe(r);
    case ShapeRule::TakeAlong:
      return take_along_recipe(r);
    case ShapeRule::OneHot:
      return one_hot_recipe(r);
    case ShapeRule::Triangle:
      return triangle_recipe(r);
    case ShapeRule::TopK:
      return top_k_recipe(r);
    case ShapeRule::Outer:
      r.add().put("a", {r.n}).put("b", {5});
      r.add().put("a", {3}).put("b", {r.n});
      return;
    case ShapeRule::Dot:
      return dot_recipe(r);
    case ShapeRule::RandomPermutation:
      r.add().put("dst", {r.n});
      r.add().put("dst", {3, r.n});
      return;
    case ShapeRule::Categorical:
      r.add().put("logits", {5, r.n}).maybe = r.n == 0;
      r.add().put("logits", {r.n, 20});
      r.add().put("logits", {r.n, 20}).set("temperature", 0.0);
      r.add().put("logits", {3, r.n}).set("top_k", int64_t{5}).set("top_p", 0.75).maybe = r.n == 0;
      return;
    case ShapeRule::Reduce:
      return reduce_recipe(r);
    case ShapeRule::ArgReduce:
      return arg_reduce_recipe(r);
    case ShapeRule::MatMul:
      return matmul_recipe(r);
    case ShapeRule::Axis:
      return axis_recipe(r);
    case ShapeRule::CrossEntropy:
    case ShapeRule::NllLoss:
      return cross_entropy_recipe(r);
    case ShapeRule::Loss:
      return loss_recipe(r);
    case ShapeRule::Dropout:
      r.add().put("src", {r.n});
      r.add().put("src", {3, r.n});
      return;
    case ShapeRule::Optimizer:
      return optimizer_recipe(r);
    case ShapeRule::ClipNorm:
      r.add().list("grads", {{r.n}, {3, r.n}, {}}).give("norm");
      r.add().list("grads", {{r.n}}).give("norm").set("c", 1000.0);
      return;
    case ShapeRule::Map:
      return map_recipe(r, false);
    case ShapeRule::MapReduce:
      return map_recipe(r, true);
    case ShapeRule::CausalSoftmax: {
      const int64_t rows = std::min<int64_t>(r.n, 40);
      r.add().put("src", {rows, r.n});
      r.add().put("src", {2, 3, r.few(), r.few() + 2});
      return;
    }
    case ShapeRule::LayerNorm:
    case ShapeRule::RmsNorm:
      return norm_recipe(r);
    case ShapeRule::GroupNorm:
      return group_norm_recipe(r);
    case ShapeRule::BatchNorm:
      return batch_norm_recipe(r);
    case ShapeRule::Conv:
      return conv_recipe(r);
    case ShapeRule::ConvTranspose:
      return conv_transpose_recipe(r);
    case ShapeRule::Pool:
      return pool_recipe(r);
    case ShapeRule::GlobalPool:
      r.add().put("src", {2, 3, r.n}).maybe = r.n == 0;
      r.add().put("src", {r.few(), 3, 5, 7});
      return;
    case ShapeRule::Upsample:
      r.add().put("src", {2, 3, r.n, 2}).set("scale", List{2});
      r.add().put("src", {1, 2, 3, r.n}).set("scale", List{1, 3});
      return;
    case ShapeRule::Rope:
      return rope_recipe(r);
    case ShapeRule::Attention:
      return attention_recipe(r);
    case ShapeRule::LstmCell:
      return cell_recipe(r, 4);
    case ShapeRule::GruCell:
      return cell_recipe(r, 3);
    case ShapeRule::SliceGrad:
    case ShapeRule::PadGrad:
    case ShapeRule::DynamicSliceGrad:
    case ShapeRule::TakeAlongGrad:
    case ShapeRule::ReduceGrad:
    case ShapeRule::CrossEntropyGrad:
    case ShapeRule::LossGrad:
    case ShapeRule::NllLossGrad:
    case ShapeRule::CausalSoftmaxGrad:
    case ShapeRule::LayerNormGrad:
    case ShapeRule::LayerNormWeightGrad:
    case ShapeRule::RmsNormGrad:
    case ShapeRule::RmsNormWeightGrad:
    case ShapeRule::GroupNormGrad:
    case ShapeRule::GroupNormWeightGrad:
    case ShapeRule::BatchNormGrad:
    case ShapeRule::BatchNormWeightGrad:
    case ShapeRule::ConvInputGrad:
    case ShapeRule::ConvWeightGrad:
    case ShapeRule::MaxPoolGrad:
    case ShapeRule::AvgPoolGrad:
    case ShapeRule::UpsampleGrad:
    case ShapeRule::AttentionGrad:
    case ShapeRule::LstmCellGrad:
    case ShapeRule::GruCellGrad:
      throw Error(Code::Internal, fmt::format("{} is the gradient of no row", r.op.mnemonic));
  }
}

}  // namespace

std::vector<Sketch> sketches_of(const OpInfo& op, DType dtype, int64_t n) {
  Recipe recipe{op, dtype, n};
  if (const OpInfo* forward = forward_of(op))
    gradient_recipe(recipe, *forward);
  else
    by_shape_rule(recipe);
  require(recipe);
  vary(recipe);
  return std::move(recipe.out);
}

}  // namespace tape::difftest
