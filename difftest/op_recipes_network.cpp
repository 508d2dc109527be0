// Recipes of products, losses, norms, windows, attention, cells, optimizers and MAP.
#include <algorithm>

#include "difftest/op_recipe.h"
#include "opcodes/map_body.h"
#include "opcodes/windows.h"

namespace tape::difftest {

// ---- linear algebra ----

void matmul_recipe(Recipe& r) {
  r.add().put("a", {r.n, 33}).put("b", {33, 5});
  r.add().put("a", {5, r.n}).put("b", {r.n, 7});
  r.add().put("a", {3, 17}).put("b", {17, r.n});
  r.add().put("a", {r.n}).put("b", {r.n});
  r.add().put("a", {r.n}).put("b", {2, r.n, 3});
  r.add().put("a", {3, r.n}).put("b", {r.n});
  r.add().put("a", {2, 1, 4, r.few()}).put("b", {3, r.few(), 5});
  r.add().put("a", {r.n, 6}).put("b", {r.n, 9}).set("trans_a", int64_t{1});
  r.add().put("a", {6, r.n}).put("b", {9, r.n}).set("trans_b", int64_t{1});
  r.add().put("a", {2, 7, 6}).put("b", {r.n, 7}).set("trans_a", int64_t{1}).set("trans_b", int64_t{1});
  r.add().put("a", {4, r.n}).put("b", {r.n, 9}).put("bias", {9}).maybe = !is_float(r.dtype);
  if (is_float(r.dtype))
    for (const int64_t act : {1, 2, 3, 4, 5, 6})
      r.add().put("a", {4, r.n}).put("b", {r.n, 9}).put("bias", {9}).give("aux").set("act", act);
  if (r.large()) r.add().put("a", {65, r.n}).put("b", {r.n, 63});
}

void dot_recipe(Recipe& r) {
  r.add().put("a", {r.n}).put("b", {r.n});
  r.add().put("a", {2, 3, r.n}).put("b", {2, 3, r.n});
}

// ---- losses ----

void cross_entropy_recipe(Recipe& r) {
  const std::string_view logits = r.op.operands()[1].name;
  for (const int64_t reduction : {0, 1, 2}) {
    r.add().put(logits, {r.n, 10}).put("labels", {r.n}, range(0, 9)).set("reduction", reduction);
    Sketch& ignores = r.add().put(logits, {4, r.n}).put("labels", {4}, index_of(r.n)).set("reduction", reduction);
    ignores.set("ignore_index", int64_t{0}).wide_index = true;
    if (r.n == 0) r.out.pop_back();
  }
  r.add().put(logits, {2, r.few(), 5}).put("labels", {2, r.few()}, range(0, 4));
  if (r.n > 1) r.add().put(logits, {r.n}).put("labels", {}, index_of(r.n));
  if (r.n == 33) r.add().put(logits, {r.n, 10}).put("labels", {r.n}, range(0, 10));  // a fault
  for (size_t i = 0, end = r.out.size(); i < end && r.op.operands().size() > 3; i += 3) {
    Sketch given = r.out[i];
    r.out.push_back(given.give("lse").set("label_smoothing", 0.125));
  }
}

void loss_recipe(Recipe& r) {
  for (const int64_t reduction : {0, 1, 2}) {
    r.add().put("a", {r.n}).put("b", {r.n}).set("reduction", reduction);
    r.add().put("a", {2, r.few(), 3}).put("b", {2, r.few(), 3}).set("reduction", reduction);
  }
  if (r.n == 1) r.add().put("a", {}).put("b", {});
}

// ---- norms ----

namespace {

/// Optional operands: none, then all that the row has.
void with_optionals(Recipe& r, const Sketch& base, const Shape& weight, const Shape& statistics) {
  Sketch bare = base;
  bare.maybe = true;
  r.out.push_back(bare);
  Sketch full = base;
  full.maybe = true;
  for (const Operand& operand : r.op.operands()) {
    if (operand.kind != OperandKind::Optional) continue;
    if (operand.type == TypeRule::Stat)
      full.put(operand.name, statistics);
    else
      full.put(operand.name, weight);
  }
  r.out.push_back(std::move(full));
}

}  // namespace

void norm_recipe(Recipe& r) {
  with_optionals(r, Sketch(r.op).put("src", {3, r.n}), {r.n}, {3});
  with_optionals(r, Sketch(r.op).put("src", {r.n, 20}), {20}, {r.n});
  with_optionals(r, Sketch(r.op).put("src", {2, r.few(), 6}).set("axis", int64_t{1}), {r.few(), 6}, {2});
  with_optionals(r, Sketch(r.op).put("src", {r.n}).set("axis", int64_t{0}), {r.n}, {});
}

void group_norm_recipe(Recipe& r) {
  with_optionals(r, Sketch(r.op).put("src", {2, 6, r.n}).set("groups", int64_t{3}), {6}, {2, 3});
  with_optionals(r, Sketch(r.op).put("src", {r.few(), 4, 2, 3}).set("groups", int64_t{1}), {4}, {r.few(), 1});
  with_optionals(r, Sketch(r.op).put("src", {3, 4}).set("groups", int64_t{4}), {4}, {3, 4});
}

void batch_norm_recipe(Recipe& r) {
  for (const int64_t training : {0, 1})
    for (const Shape& shape : {Shape{2, 3, r.n}, Shape{r.n, 5}, Shape{r.few(), 4, 2, 3}}) {
      const Shape channels{shape[1]};
      Sketch sketch(r.op);
      sketch.put("src", shape).put("running_mean", channels).put("running_var", channels, range(0.5, 2));
      with_optionals(r, sketch.set("training", training), channels, channels);
    }
}

// ---- windows ----

void conv_recipe(Recipe& r) {
  const bool flat = spatial_axes(r.op) == 1;
  const auto add = [&](int64_t batch, int64_t channels, int64_t length, int64_t out, int64_t kernel) -> Sketch& {
    Sketch& sketch = r.add();
    sketch.maybe = r.n < 4;
    if (flat) return sketch.put("src", {batch, channels, length}).put("weight", {out, channels, kernel});
    return sketch.put("src", {batch, channels, length, 5}).put("weight", {out, channels, kernel, kernel});
  };
  add(2, 3, r.n, 4, 3);
  add(1, 2, r.n, 3, 3).set("pad", List{1}).put("bias", {3});
  add(1, 3, r.n, 2, 1).set("stride", List{2});
  add(2, 2, r.n, 3, 2).set("dilation", List{2}).set("pad", flat ? List{1, 2} : List{1, 0, 2, 1});
  add(r.few(), 2, 6, 3, 3).maybe = false;
  Sketch& grouped = add(1, 4, r.n, 6, 3).set("groups", int64_t{2}).set("pad", List{1}).put("bias", {6});
  grouped.put("weight", flat ? Shape{6, 2, 3} : Shape{6, 2, 3, 3});
  if (!flat) {
    Sketch& wide = r.add().put("src", {1, 2, 5, r.n}).put("weight", {3, 2, 2, 3}).set("stride", List{1, 2});
    wide.set("pad", List{0, 1}).maybe = r.n < 4;
  }
}

void conv_transpose_recipe(Recipe& r) {
  const auto add = [&](const Shape& src, const Shape& weight) -> Sketch& {
    Sketch& sketch = r.add().put("src", src).put("weight", weight);
    sketch.maybe = r.n < 4;
    return sketch;
  };
  add({1, 4, r.n, 3}, {4, 2, 3, 3}).set("stride", List{2}).set("output_pad", List{1}).set("pad", List{1});
  add({2, 3, 2, r.n}, {3, 2, 2, 2}).put("bias", {2});
  add({1, 4, r.n, 2}, {4, 3, 3, 2}).set("groups", int64_t{2}).set("dilation", List{2, 1}).put("bias", {6});
}

void pool_recipe(Recipe& r) {
  const auto add = [&](const Shape& src, List kernel) -> Sketch& {
    Sketch& sketch = r.add().put("src", src).set("kernel", std::move(kernel));
    sketch.maybe = r.n < 4;
    return sketch;
  };
  const bool index = r.op.operands().size() > 2;
  add({2, 3, r.n, 5}, {2, 2});
  Sketch& padded = add({1, 2, 5, r.n}, {3}).set("stride", List{1, 2}).set("pad", List{1});
  if (index) padded.give("index");
  add({1, 2, r.n, 6}, {3, 2}).set("stride", List{2}).set("pad", List{1, 0, 0, 1});
  if (!r.has("dilation")) return;
  Sketch& dilated = add({1, 2, r.n, 7}, {2, 3}).set("dilation", List{2}).set("stride", List{1});
  dilated.wide_index = true;
  if (index) dilated.give("index");
}

// ---- attention, cells ----

void rope_recipe(Recipe& r) {
  for (const int64_t style : {0, 1}) {
    r.add().put("src", {r.n, 8}).put("pos", {r.n}, range(0, 100)).set("style", style);
    r.add().put("src", {2, 3, 5, 2 * r.few()}).put("pos", {}, range(0, 100)).set("style", style).wide_index = true;
  }
  if (r.n == 33) r.add().put("src", {r.n, 8}).put("pos", {r.n}, range(-1, 20));  // a fault
}

void attention_recipe(Recipe& r) {
  const auto add = [&](const Shape& q, const Shape& k, const Shape& v) -> Sketch& {
    return r.add().put("q", q).put("k", k).put("v", v);
  };
  const int64_t small = std::min<int64_t>(r.n, 255);
  add({5, 16}, {r.n, 16}, {r.n, 16});
  add({2, small, 8}, {2, small, 8}, {2, small, 8}).set("causal", int64_t{1}).give("lse");
  add({2, 4, 3, 16}, {2, 2, r.n, 16}, {2, 2, r.n, 7}).put("kv_len", {2}, range(0, static_cast<double>(r.n)));
  add({1, 2, small, 32}, {1, 2, small, 32}, {1, 2, small, 32}).set("causal", int64_t{1}).set("scale", 0.25);
  add({1, 2, 7, 64}, {1, 1, small + 7, 64}, {1, 1, small + 7, 64}).set("causal", int64_t{1}).give("lse");
  if (r.n == 33) add({1, 1, 3, 4}, {1, 1, r.n, 4}, {1, 1, r.n, 4}).put("kv_len", {}, range(40, 40));  // a fault
}

void cell_recipe(Recipe& r, int64_t parts) {
  const auto add = [&](int64_t batch, int64_t inputs, int64_t hidden, bool optionals) {
    Sketch& sketch = r.add().put("x", {batch, inputs}).put("h_prev", {batch, hidden});
    if (parts == 4) sketch.put("c_prev", {batch, hidden});
    sketch.put("w_ih", {parts * hidden, inputs}).put("w_hh", {parts * hidden, hidden});
    if (optionals) sketch.put("bias_ih", {parts * hidden}).put("bias_hh", {parts * hidden}).give("gates");
  };
  add(r.n, 3, 4, true);
  add(2, r.few(), 5, false);
  add(3, 4, r.few(), true);
  if (r.large()) add(2, r.n, 33, true);
}

// ---- optimizers ----

void optimizer_recipe(Recipe& r) {
  const std::vector<Shape> shapes{{r.n}, {3, r.n}, {}};
  const auto add = [&](bool momentum) -> Sketch& {
    Sketch& sketch = r.add();
    if (momentum) sketch.set("momentum", 0.5);
    for (const Operand& operand : r.op.operands()) {
      if (operand.kind == OperandKind::OptionalList) continue;
      const bool stateless = r.has("momentum") && sketch.attributes.attr_float("momentum") == 0;
      if (operand.kind != OperandKind::List)
        sketch.put(operand.name, {}, operand.type == TypeRule::I64 ? range(3, 3) : range(0.01, 0.02));
      else if (operand.name == "m" && stateless)
        sketch.list(operand.name, {});
      else
        sketch.list(operand.name, shapes, operand.name == "v" || operand.name == "max" ? range(0, 1) : Fill{});
    }
    return sketch;
  };
  add(false);
  if (r.has("momentum")) add(true);
  if (r.has("nesterov")) add(true).set("nesterov", int64_t{1});
  Sketch& copies = add(false);
  copies.list("master", shapes).list("low", shapes).dtype("low", DType::BF16);
  add(false).dtype("lr", DType::F64);
  for (const Attribute& attribute : r.op.attributes())
    if (attribute.name == "weight_decay" || attribute.name == "lr_decay" || attribute.name == "eps")
      add(false).set(attribute.name, 0.125);
}

// ---- MAP ----

namespace {

class BodyMaker {
 public:
  BodyMaker(size_t sources, DType dtype, size_t destinations) {
    body_.sources = sources;
    body_.destinations = destinations;
    body_.dtypes.assign(sources + destinations, dtype);
  }
  uint32_t temporary(DType dtype) {
    body_.dtypes.push_back(dtype);
    return static_cast<uint32_t>(body_.dtypes.size() - 1);
  }
  void add(std::string_view mnemonic, const std::vector<uint32_t>& slots) {
    Command command = make_command(*find_op(mnemonic));
    for (const uint32_t slot : slots) command.push_operand(slot);
    body_.commands.push_back(std::move(command));
  }
  [[nodiscard]] List words() const { return encode_map_body(body_); }

 private:
  MapBody body_;
};

/// Bodies of sources 0, 1 and one destination 2: sums and products, a comparison with a choice, functions.
std::vector<List> bodies(DType dtype, bool reduces) {
  std::vector<List> all;
  if (reduces && dtype == DType::Bool) {  // a reduction takes numbers
    BodyMaker b(2, DType::Bool, 0);
    const uint32_t sum = b.temporary(DType::I32), t = b.temporary(DType::Bool);
    b.add("XOR", {t, 0, 1});
    b.add("CAST", {sum, t});
    return {b.words()};
  }
  {
    BodyMaker b(2, dtype, 1);
    const uint32_t t = b.temporary(dtype);
    if (dtype == DType::Bool) {
      b.add("XOR", {t, 0, 1});
      b.add("NOT", {2, t});
    } else {
      b.add("MUL", {t, 0, 1});
      b.add("ADD", {2, t, 0});
    }
    all.push_back(b.words());
  }
  {
    BodyMaker b(2, dtype, 1);
    const uint32_t less = b.temporary(DType::Bool);
    b.add("LT", {less, 0, 1});
    b.add("WHERE", {2, less, 1, 0});
    all.push_back(b.words());
  }
  if (is_float(dtype)) {
    BodyMaker b(2, dtype, 1);
    const uint32_t e = b.temporary(dtype), s = b.temporary(DType::F32);
    b.add("TANH", {e, 0});
    b.add("CAST", {s, e});
    b.add("CAST", {2, s});
    b.add("SUB", {2, 2, 1});
    all.push_back(b.words());
  }
  return all;
}

}  // namespace

void map_recipe(Recipe& r, bool reduces) {
  const auto joined = [](const Shape& a, const Shape& b) {
    const std::optional<Shape> both = broadcast(a, b);
    return both ? *both : a;
  };
  struct Form {
    Shape a, b;
    int64_t axes;
  };
  const std::vector<Form> forms{
      {{r.n}, {r.n}, 1}, {{3, r.n}, {r.n}, 1}, {{r.few(), 1, 5}, {4, 1}, 2}, {{2, 3, r.few(), 2}, {}, 3}};
  for (const List& body : bodies(r.dtype, reduces))
    for (const Form& form : forms) {
      Sketch sketch(r.op);
      sketch.list("src", {form.a, form.b}).list("dst", {Shape{}}).set("body", body);
      if (!reduces) {
        r.out.push_back(sketch.list("dst", {joined(form.a, form.b)}));
        continue;
      }
      const Shape full = joined(form.a, form.b);
      const auto kept = full.dims().first(static_cast<size_t>(full.rank() - form.axes));
      for (const int64_t kind : {0, 1, 2, 3, 4}) {
        Sketch reduced = sketch;
        reduced.list("dst", {Shape(kept)}).set("reduce", kind).set("axes", form.axes).maybe = true;
        r.out.push_back(std::move(reduced));
      }
    }
}

}  // namespace tape::difftest
