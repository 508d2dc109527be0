// Shape rules of MAP and MAP_REDUCE. Their dtypes are settled here too: the body says what each destination is.
#include <algorithm>

#include "opcodes/infer_rules.h"
#include "opcodes/map_body.h"

namespace tape::infer_rules {
namespace {

Broken read_body(const Checked& c, MapBody& body) {
  std::vector<DType> dtypes;
  std::vector<std::string_view> names;
  for (const OperandType& source : c.list(1)) {
    dtypes.push_back(source.dtype);
    names.push_back(source.name);
  }
  for (const OperandType& destination : c.list(0)) names.push_back(destination.name);
  if (auto reason = decode_map_body(c.command.attr_list("body"), dtypes, c.list(0).size(), body, names))
    return c.broken("{}", *reason);
  return std::nullopt;
}

/// A name in the body means one tensor.
Broken named_once(const Checked& c) {
  const auto sources = c.command.operand(1);
  for (size_t i = 0; i < sources.size(); ++i)
    if (std::find(sources.begin(), sources.begin() + static_cast<ptrdiff_t>(i), sources[i]) !=
        sources.begin() + static_cast<ptrdiff_t>(i))
      return c.broken("{} is a source twice", c.list(1)[i].name);
  return std::nullopt;
}

Broken broadcast_sources(const Checked& c, Shape& shape) {
  shape = c.list(1)[0].shape;
  for (const OperandType& source : c.list(1).subspan(1)) {
    const auto both = broadcast(shape, source.shape);
    if (!both) return c.broken("shapes do not broadcast: {}, {}", shape.text(), with_shape(source));
    shape = *both;
  }
  return std::nullopt;
}

/// The destination is `wanted`, or what it is to be inferred as.
Broken want_dtype(const Checked& c, OperandType& type, DType wanted) {
  if (!type.dtype_known) {
    type.dtype = wanted;
    type.dtype_known = true;
  }
  if (type.dtype == wanted) return std::nullopt;
  return c.broken("{} is {}, the body gives {}", type.name, name_of(type.dtype), name_of(wanted));
}

enum Reduce : int64_t { kSum, kMean, kProd, kMax, kMin };  // of sum|mean|prod|max|min

/// Dtype rules of SUM, MEAN, PROD, REDUCE_MAX and REDUCE_MIN. `value`: what the body gives.
Broken reduced_dtype(const Checked& c, OperandType& type, DType value) {
  const int64_t kind = c.command.attr_int("reduce");
  const DTypeSet set = kind == kMean ? kFloats : kNumbers;
  if (!set.has(value)) return c.broken("{} is made of {}, wants {}", type.name, name_of(value), set.text());
  const bool widens = kind == kSum || kind == kMean || kind == kProd;
  if (widens && is_half(value) && type.dtype_known && type.dtype == DType::F32) return std::nullopt;
  return want_dtype(c, type, value);
}

}  // namespace

Broken map(const Checked& c) {
  MapBody body;
  Shape shape;
  if (Broken broken = named_once(c)) return broken;
  if (Broken broken = read_body(c, body)) return broken;
  if (Broken broken = broadcast_sources(c, shape)) return broken;
  for (size_t i = 0; i < c.list(0).size(); ++i) {
    OperandType& type = c.list(0)[i];
    if (Broken broken = want_dtype(c, type, body.dtypes[body.sources + i])) return broken;
    if (Broken broken = c.want_shape(type, shape, [] { return " as the sources broadcast"; })) return broken;
  }
  return std::nullopt;
}

Broken map_reduce(const Checked& c) {
  MapBody body;
  Shape full, shape;
  if (Broken broken = named_once(c)) return broken;
  if (Broken broken = read_body(c, body)) return broken;
  if (Broken broken = broadcast_sources(c, full)) return broken;
  const int64_t axes = c.command.attr_int("axes");
  if (axes > full.rank()) return c.broken("axes={} is more than the rank of {}", axes, full.text());
  const int kept = full.rank() - static_cast<int>(axes);
  int64_t count = 1;
  for (int axis = 0; axis < full.rank(); ++axis) {
    if (axis < kept)
      shape.push_back(full[axis]);
    else if (c.command.attr_bool("keepdims"))
      shape.push_back(1);
    if (axis >= kept) count *= full[axis];
  }
  const int64_t kind = c.command.attr_int("reduce");
  if (count == 0 && kind != kSum && kind != kProd) return c.broken("reduces over nothing: {}", full.text());
  for (size_t i = 0; i < c.list(0).size(); ++i) {
    OperandType& type = c.list(0)[i];
    if (Broken broken = reduced_dtype(c, type, body.dtypes[body.sources + i])) return broken;
    if (Broken broken = c.want_shape(type, shape, [&] { return fmt::format(" from {}", full.text()); })) return broken;
  }
  return std::nullopt;
}

}  // namespace tape::infer_rules
