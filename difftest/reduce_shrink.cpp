// Smaller extents, fewer axes, plainer values.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <set>

#include "difftest/reduce_units.h"
#include "opcodes/infer.h"
#include "vm/compare.h"

namespace tape::difftest {
namespace {

HostArray array_of(const Module& module, const Tensor& tensor) {
  const std::span<const std::byte> bytes = module.blobs[tensor.blob].bytes;
  return {tensor.dtype, tensor.shape, {bytes.begin(), bytes.end()}};
}

/// Positions [0, to) of an axis that are taken from positions [from, from + to).
HostArray cut(const HostArray& array, int axis, int64_t from, int64_t to) {
  HostArray result{array.dtype, array.shape, {}};
  result.shape[axis] = to;
  uint64_t outer = 1, inner = size_of(array.dtype);
  for (int k = 0; k < array.shape.rank(); ++k)
    (k < axis ? outer : inner) *= k == axis ? 1 : static_cast<uint64_t>(array.shape[k]);
  const uint64_t row = static_cast<uint64_t>(array.shape[axis]) * inner;
  for (uint64_t i = 0; i < outer; ++i) {
    const auto begin = array.bytes.begin() + static_cast<std::ptrdiff_t>(i * row + static_cast<uint64_t>(from) * inner);
    result.bytes.insert(result.bytes.end(), begin,
                        begin + static_cast<std::ptrdiff_t>(static_cast<uint64_t>(to) * inner));
  }
  return result;
}

class Shrinker {
 public:
  Shrinker(VerifiedModule best, const ReduceOptions& options, uint64_t& judged)
      : best_(std::move(best)), options_(options), judged_(judged) {}

  VerifiedModule run() {
    for (bool more = true; more;) {
      more = lists();
      more |= extents();
      more |= leading_axes();
    }
    values();
    return std::move(best_);
  }

 private:
  /// Takes the first interesting one.
  bool take(std::vector<Module> modules, const char* what) {
    std::vector<VerifiedModule> candidates;
    for (Module& module : modules) {
      Diagnostics diagnostics;
      if (std::optional<VerifiedModule> verified = verify(std::move(module), diagnostics))
        candidates.push_back(std::move(*verified));
    }
    if (candidates.empty()) return false;
    judged_ += candidates.size();
    const std::optional<size_t> found = options_.judge(candidates);
    if (!found) return false;
    best_ = candidates[*found];
    if (options_.progress)
      options_.progress(fmt::format("{} commands, {} elements: {}", reduced_commands(best_.module()),
                                    reduced_elements(best_.module()), what));
    return true;
  }

  /// Members of lists, of optimizers for one: the same positions of every list of a command that is as long.
  bool lists() {
    size_t longest = 0;
    for (const PlacedCommand& placed : commands_of(best_.module(), best_.module().tapes[0]))
      longest = std::max(longest, longest_list(placed.command));
    bool any = false;
    for (size_t size = longest / 2; size > 0; size /= 2)
      for (bool more = true; more;) {
        std::vector<Module> shorter;
        for (size_t first = 0; first < longest; first += size)
          if (std::optional<Module> module = without_members(first, size)) shorter.push_back(std::move(*module));
        more = take(std::move(shorter), "members of lists dropped");
        any |= more;
      }
    return any;
  }
  [[nodiscard]] static size_t longest_list(const Command& command) {
    size_t longest = 0;
    for (size_t i = 0; i < command.ends.size(); ++i)
      if (is_list(command.op->operands()[i].kind)) longest = std::max(longest, command.operand(i).size());
    return longest;
  }
  /// Nothing when no list has such members, or one would be left empty. Tensors that nobody names any more are gone.
  [[nodiscard]] std::optional<Module> without_members(size_t first, size_t count) const {
    Module module = best_.module();
    bool any = false, empty = false;
    rewrite(module, [&](Command& command) {
      const size_t longest = longest_list(command);
      if (longest <= first) return;
      empty |= first == 0 && count >= longest;
      any = true;
      Command shorter = make_command(*command.op);
      shorter.attrs = command.attrs;
      for (size_t i = 0; i < command.ends.size(); ++i) {
        std::vector<uint32_t> ids(command.operand(i).begin(), command.operand(i).end());
        if (is_list(command.op->operands()[i].kind) && ids.size() == longest)
          ids.erase(ids.begin() + static_cast<std::ptrdiff_t>(first),
                    ids.begin() + static_cast<std::ptrdiff_t>(std::min(first + count, longest)));
        shorter.push_operand(ids);
      }
      command = std::move(shorter);
    });
    if (!any || empty) return std::nullopt;
    drop_unnamed(module);
    infer_results(module);
    return module;
  }
  static void drop_unnamed(Module& module) {
    std::vector<char> named(module.tensors.size());
    const auto each = [&](Command& command, auto&& see) {
      for (size_t i = 0; i < command.ends.size(); ++i)
        if (command.is_tensor(i))
          for (uint32_t& id : command.operand(i))
            if (id != kAbsent) see(id);
    };
    rewrite(module, [&](Command& command) { each(command, [&](uint32_t& id) { named[id] = 1; }); });
    for (size_t id = 0; id < named.size(); ++id)
      if (named[id] != 0 && module.tensors[id].link != kNone) named[module.tensors[id].link] = 1;
    std::vector<PlacedCommand> commands = commands_of(module, module.tapes[0]);
    std::vector<uint32_t> moved(named.size(), kNone);
    std::vector<Tensor> kept;
    for (size_t id = 0; id < named.size(); ++id) {
      if (named[id] == 0) continue;
      moved[id] = static_cast<uint32_t>(kept.size());
      kept.push_back(std::move(module.tensors[id]));
    }
    for (Tensor& tensor : kept)
      if (tensor.link != kNone) tensor.link = moved[tensor.link];
    module.tensors = std::move(kept);
    module.tapes[0].words.clear();
    module.tapes[0].lines.clear();
    TapeBuilder builder(module, 0);
    for (PlacedCommand& placed : commands) {
      each(placed.command, [&](uint32_t& id) { id = moved[id]; });
      builder.add(placed.command, placed.location);
    }
  }

  bool extents() {
    std::set<int64_t, std::greater<>> known;
    for (const Tensor& tensor : best_.module().tensors)
      for (const int64_t extent : tensor.shape.dims())
        if (extent > 1) known.insert(extent);
    bool any = false;
    for (const int64_t extent : known) {
      std::vector<Module> smaller;
      std::set<int64_t> tried;
      for (const int64_t to : {int64_t{1}, int64_t{2}, int64_t{3}, int64_t{5}, extent / 4, extent / 2, extent - 1}) {
        if (to < 1 || to >= extent || !tried.insert(to).second) continue;
        smaller.push_back(with_extent(extent, to, false));
        smaller.push_back(with_extent(extent, to, true));
      }
      any |= take(std::move(smaller), "smaller extents");
    }
    return any;
  }
  /// Every axis of that extent, the values from its beginning or its end.
  [[nodiscard]] Module with_extent(int64_t extent, int64_t to, bool end) const {
    Module module = best_.module();
    for (Tensor& tensor : module.tensors)
      for (int axis = 0; axis < tensor.shape.rank(); ++axis) {
        if (tensor.shape[axis] != extent) continue;
        if (tensor.blob != kNone) {
          HostArray part = cut(array_of(module, tensor), axis, end ? extent - to : 0, to);
          tensor.blob = add_blob(module, std::move(part.bytes));
        }
        tensor.shape[axis] = to;
      }
    rewrite(module, [&](Command& command) {
      for (AttrValue& value : command.attrs)
        for (int64_t& element : value.list)
          if (element == extent) element = to;
    });
    infer_results(module);
    return module;
  }
  /// Results whose extents are made of those of several sources, or of what an attribute says.
  static void infer_results(Module& module) {
    for (const PlacedCommand& placed : commands_of(module, module.tapes[0])) {
      const Command& command = placed.command;
      std::vector<OperandType> types;
      for (size_t i = 0; i < command.ends.size(); ++i)
        for (const uint32_t id : command.operand(i)) {
          OperandType type;
          if (command.is_tensor(i) && id != kAbsent) {
            const Tensor& tensor = module.tensors[id];
            const bool open = command.access(i) == Access::Write && tensor.blob == kNone && tensor.role == Role::Output;
            type = {tensor.name, tensor.dtype, tensor.shape, true, !open};
          }
          types.push_back(type);
        }
      if (infer(command, types)) continue;  // whether the shapes that are there fit is for the verifier to say
      for (size_t at = 0; at < types.size(); ++at)
        if (types[at].dtype_known && command.ids[at] != kAbsent)
          if (const uint32_t id = command.ids[at];
              id < module.tensors.size() && types[at].name == module.tensors[id].name)
            module.tensors[id].shape = types[at].shape;
    }
  }
  bool leading_axes() {
    Module module = best_.module();
    bool any = false;
    for (Tensor& tensor : module.tensors) {
      if (tensor.shape.rank() == 0 || tensor.shape[0] != 1) continue;
      tensor.shape = Shape(tensor.shape.dims().subspan(1));
      any = true;
    }
    std::vector<Module> one;
    if (any) one.push_back(std::move(module));
    return take(std::move(one), "an axis less");
  }

  void values() {
    for (size_t id = 0; id < best_.module().tensors.size(); ++id) {
      const Tensor& tensor = best_.module().tensors[id];
      if (tensor.blob == kNone || tensor.shape.elements() == 0) continue;
      if (take(plainer(id), "plainer values")) continue;
      for (uint64_t size = static_cast<uint64_t>(tensor.shape.elements()) / 2; size > 0; size /= 2)
        while (take(fewer(id, size), "fewer values"))
          if (size > static_cast<uint64_t>(tensor.shape.elements())) break;
    }
  }
  /// Zeros, ones, integers, then fewer bits.
  [[nodiscard]] std::vector<Module> plainer(size_t id) const {
    std::vector<Module> all{with_values(id, [](double) { return 0.0; }), with_values(id, [](double) { return 1.0; })};
    if (!is_float(best_.module().tensors[id].dtype)) return all;
    all.push_back(with_values(id, [](double x) { return std::isfinite(x) ? std::nearbyint(x) : x; }));
    for (const int bits : {2, 4, 8})
      all.push_back(with_values(id, [bits](double x) {
        if (x == 0 || !std::isfinite(x)) return x;
        int exponent = 0;
        const double mantissa = std::frexp(x, &exponent);
        return std::ldexp(std::nearbyint(std::ldexp(mantissa, bits)), exponent - bits);
      }));
    // What is as plain as that already is no gain.
    std::erase_if(all, [&](const Module& module) { return same_values(module, id); });
    return all;
  }
  /// A run of elements that is not all zero becomes zeros.
  [[nodiscard]] std::vector<Module> fewer(size_t id, uint64_t size) const {
    const Tensor& tensor = best_.module().tensors[id];
    std::vector<Module> all;
    const auto elements = static_cast<uint64_t>(tensor.shape.elements());
    for (uint64_t first = 0; first < elements && all.size() < 64; first += size) {
      uint64_t at = 0;
      Module module = with_values(id, [&](double x) {
        const bool inside = at >= first && at < first + size;
        ++at;
        return inside ? 0.0 : x;
      });
      if (!same_values(module, id)) all.push_back(std::move(module));
    }
    return all;
  }
  [[nodiscard]] bool same_values(const Module& module, size_t id) const {
    const std::span<const std::byte> a = module.blobs[module.tensors[id].blob].bytes;
    const std::span<const std::byte> b = best_.module().blobs[best_.module().tensors[id].blob].bytes;
    return std::equal(a.begin(), a.end(), b.begin(), b.end());
  }
  template <class Change>
  [[nodiscard]] Module with_values(size_t id, Change change) const {
    Module module = best_.module();
    Tensor& tensor = module.tensors[id];
    const HostArray array = array_of(module, tensor);
    const auto elements = static_cast<uint64_t>(tensor.shape.elements());
    std::vector<double> wide(elements);
    for (uint64_t i = 0; i < elements; ++i) wide[i] = change(element_as_f64(array.bytes, array.dtype, i));
    std::vector<std::byte> bytes(array.bytes.size());
    convert({reinterpret_cast<const std::byte*>(wide.data()), elements * sizeof(double)}, DType::F64, bytes,
            tensor.dtype);
    tensor.blob = add_blob(module, std::move(bytes));
    return module;
  }

  template <class Change>
  static void rewrite(Module& module, Change change) {
    std::vector<PlacedCommand> commands = commands_of(module, module.tapes[0]);
    module.tapes[0].words.clear();
    module.tapes[0].lines.clear();
    TapeBuilder builder(module, 0);
    for (PlacedCommand& placed : commands) {
      change(placed.command);
      builder.add(placed.command, placed.location);
    }
  }

  VerifiedModule best_;
  const ReduceOptions& options_;
  uint64_t& judged_;
};

/// Blobs that no tensor uses any more are left behind.
VerifiedModule without_spare_blobs(const VerifiedModule& verified) {
  Module module = verified.module();
  std::vector<Blob> used;
  for (Tensor& tensor : module.tensors)
    if (tensor.blob != kNone) {
      used.push_back(module.blobs[tensor.blob]);
      tensor.blob = static_cast<uint32_t>(used.size() - 1);
    }
  module.blobs = std::move(used);
  Diagnostics diagnostics;
  return *verify(std::move(module), diagnostics);
}

}  // namespace

VerifiedModule shrink_values(VerifiedModule module, const ReduceOptions& options, uint64_t& candidates) {
  return without_spare_blobs(Shrinker(std::move(module), options, candidates).run());
}

}  // namespace tape::difftest
