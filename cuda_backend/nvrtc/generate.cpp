#include "cuda_backend/nvrtc/generate.h"

#include <fmt/format.h>

#include <numeric>

#include "cuda_backend/boundary.h"
#include "cuda_backend/kernels/elementwise_rows.h"
#include "cuda_backend/lower/values.h"

namespace tape::cuda {
namespace {

constexpr int kThreads = 256;
constexpr uint64_t kMostBlocks = 132 * 32;                 // of kernels that loop over rows
constexpr int64_t kBlockElements = 65'536;                 // of a leaf
constexpr int64_t kNarrow = int64_t{1} << 30;              // elements below which u32 indexes them
constexpr size_t kLongest = 768;                           // commands of an unrolled loop, functions as several
enum Reduce : int64_t { kSum, kMean, kProd, kMax, kMin };  // of sum|mean|prod|max|min

const char* type_name(DType dtype) {
  switch (dtype) {
    case DType::F64:
      return "double";
    case DType::F32:
      return "float";
    case DType::F16:
      return "Half";
    case DType::BF16:
      return "BFloat16";
    case DType::I64:
      return "int64_t";
    case DType::I32:
      return "int32_t";
    case DType::I16:
      return "int16_t";
    case DType::I8:
      return "int8_t";
    case DType::U8:
      return "uint8_t";
    case DType::Bool:
      return "bool";
  }
  return "";
}

struct RowName {
  const char* form;
  const char* functor;
};
RowName row_name(Opcode op) {
  switch (op) {
#define TAPE_ROW(Name, form, ...) \
  case Opcode::Name:              \
    return {#form, #__VA_ARGS__};
    TAPE_ELEMENTWISE_ROWS(TAPE_ROW)
#undef TAPE_ROW
    default:
      return {"", ""};
  }
}

/// An element with these bits.
std::string element(uint64_t bits, DType dtype) {
  switch (dtype) {
    case DType::F64:
      return fmt::format("device::bits_as<double>({:#x}ull)", bits);
    case DType::F32:
      return fmt::format("device::bits_as<float>({:#x}u)", bits);
    case DType::F16:
    case DType::BF16:
      return fmt::format("device::bits_as<{}>(static_cast<uint16_t>({:#x}u))", type_name(dtype), bits);
    case DType::Bool:
      return bits != 0 ? "true" : "false";
    case DType::I64:
    case DType::I32:
    case DType::I16:
    case DType::I8:
    case DType::U8:
      break;
  }
  return fmt::format("static_cast<{}>({:#x}ull)", type_name(dtype), bits);
}

std::string constant(double f, int64_t i, DType dtype) {
  const DType compute = compute_of(dtype);
  return element(is_float(dtype) ? float_bits(f, compute) : static_cast<uint64_t>(i), compute);
}

/// A kernel of some commands of a body and some of its slots as results.
class Kernel {
 public:
  Kernel(const MapCall& map, std::vector<size_t> commands, std::vector<uint32_t> results)
      : map_(map), commands_(std::move(commands)), results_(std::move(results)) {
    std::vector<bool> used(map.body.dtypes.size(), false);
    for (const size_t at : commands_)
      for (const uint32_t slot : map.body.commands[at].ids)
        if (slot != kAbsent) used[slot] = true;
    for (uint32_t slot = 0; slot < map.body.dtypes.size(); ++slot)
      if (used[slot]) (map.body.is_source(slot) ? sources_ : locals_).push_back(slot);
  }

  [[nodiscard]] std::string check(int64_t elements) const {
    return fmt::format(
        R"(struct @Test {{
  const compiled::Args<{operands}>& args;
{body}  __device__ compiled::Refusal find(int64_t i) const {{
{scalars}{offsets}    return body({loads});
  }}
  __device__ bool bad(int64_t i) const {{ return find(i).command >= 0; }}
  __device__ void describe(int64_t i, Fault& fault) const {{
    const compiled::Refusal refusal = find(i);
    fault.operand = refusal.command;
    fault.a = static_cast<uint64_t>(refusal.value);
  }}
}};
extern "C" __global__ void __launch_bounds__(256) @(const __grid_constant__ compiled::Args<{operands}> args) {{
  await_grids();
  release_grids();
  find_first(args.fault, Site{{args.command, {kind}u, 0}}, {elements}ull, @Test{{args}});
}}
)",
        fmt::arg("operands", map_.call.operands.size()), fmt::arg("body", body(true)), fmt::arg("scalars", scalars()),
        fmt::arg("offsets", axes(fmt::format("static_cast<{}>(i)", index()), 1)), fmt::arg("loads", loads()),
        fmt::arg("kind", static_cast<uint32_t>(TAPE_CUDA_BODY)), fmt::arg("elements", elements));
  }

  [[nodiscard]] std::string map(uint64_t& blocks) const {
    const int width = pack_width();
    const int unroll = unroll_of(width);
    blocks = static_cast<uint64_t>(
        std::max<int64_t>(1, (map_.nest.elements / width + kThreads * unroll - 1) / (kThreads * unroll)));
    std::string packs, single;
    if (width > 1) packs = fmt::format("  if ({})\n    return @Body::play<{}, {}>(args);\n", fit(width), width, unroll);
    return fmt::format(R"(struct @Body {{
{body}  static __device__ __forceinline__ void one(const compiled::Args<{operands}>& args, {index} i) {{
{scalars}{axes_one}{results}    body({loads}{refs});
{stores}  }}
  template <int W, int U>
  static __device__ __forceinline__ void play(const compiled::Args<{operands}>& args) {{
    constexpr {index} kChunks = {elements}ull / W;
{scalars}    for ({index} first = {index}(blockIdx.x) * (256 * U) + threadIdx.x; first < kChunks;
         first += {index}(gridDim.x) * (256 * U)) {{
{pack_arrays}#pragma unroll
      for (int u = 0; u < U; ++u) {{
        const {index} i = first + static_cast<{index}>(u * 256);
        if (i < kChunks) {{
{axes_pack}{load_packs}        }}
      }}
#pragma unroll
      for (int u = 0; u < U; ++u) {{
        const {index} i = first + static_cast<{index}>(u * 256);
        if (i < kChunks) {{
{axes_pack}{result_packs}#pragma unroll
          for (int w = 0; w < W; ++w) body({pack_values}{pack_refs});
{store_packs}        }}
      }}
    }}
    if constexpr ({elements}ull % W != 0)
      if (blockIdx.x == 0 && threadIdx.x < {elements}ull % W) one(args, kChunks * W + threadIdx.x);
  }}
}};
extern "C" __global__ void __launch_bounds__(256) @(const __grid_constant__ compiled::Args<{operands}> args) {{
  TAPE_KERNEL_BEGIN(args);
{packs}  @Body::play<1, 1>(args);
}}
)",
                       fmt::arg("body", body(false)), fmt::arg("operands", map_.call.operands.size()),
                       fmt::arg("index", index()), fmt::arg("scalars", scalars()), fmt::arg("axes_one", axes("i", 1)),
                       fmt::arg("results", results()), fmt::arg("loads", loads()), fmt::arg("refs", refs("r{}")),
                       fmt::arg("stores", stores(false)), fmt::arg("elements", map_.nest.elements),
                       fmt::arg("pack_arrays", pack_arrays()), fmt::arg("axes_pack", axes("i", 0)),
                       fmt::arg("load_packs", load_packs()), fmt::arg("result_packs", result_packs()),
                       fmt::arg("pack_values", pack_values()), fmt::arg("pack_refs", refs("r{}.at[w]")),
                       fmt::arg("store_packs", stores(true)), fmt::arg("packs", packs));
  }

  /// The results all have elements of one size.
  [[nodiscard]] std::string reduce(const std::vector<size_t>& destinations, uint64_t& blocks) const {
    const int width = static_cast<int>(16 / size_of(map_.body.dtypes[results_[0]]));
    const int64_t leaves = std::max<int64_t>(1, (map_.count + kBlockElements - 1) / kBlockElements);
    const bool warp = map_.count <= int64_t{32} * width;
    blocks = warp ? (static_cast<uint64_t>(map_.outputs) + 7) / 8 : static_cast<uint64_t>(map_.outputs * leaves);
    blocks = std::clamp<uint64_t>(blocks, 1, kMostBlocks);
    const bool aligned = map_.outputs == 1 || map_.count % width == 0;
    const size_t length = static_cast<size_t>(width) * weight();
    const bool packs = aligned && packs_of(width) && length <= kLongest;
    std::string rules, accumulators, add_pack, add_one, finish;
    for (size_t k = 0; k < results_.size(); ++k) {
      const uint32_t slot = results_[k];
      const char* const type = type_name(map_.body.dtypes[slot]);
      rules += fmt::format("  using R{} = {};\n", k, rule(type));
      accumulators += fmt::format(
          "    typename R{0}::Acc a{0}[V];\n#pragma unroll\n    for (int v = 0; v < V; ++v) a{0}[v] = "
          "R{0}::identity();\n",
          k);
      add_one +=
          fmt::format("        a{0}[v] = R{0}::combine(a{0}[v], static_cast<typename R{0}::Acc>(r{1}));\n", k, slot);
      const DType to = map_.call.operands[destinations[k]].dtype;
      const std::string out =
          leaves > 1
              ? fmt::format(
                    "reinterpret_cast<typename R{0}::Acc*>(static_cast<double*>(args.partial) + {1}ull)[row] = "
                    "value;",
                    k, static_cast<uint64_t>(destinations[k]) * static_cast<uint64_t>(map_.outputs * leaves))
              : fmt::format(
                    "compiled::write_output<R{}, {}>(static_cast<{}*>(args.operand[{}]), output, value, {}ll, "
                    "{});",
                    k, type, type_name(to), destinations[k], map_.count, map_.call.command.attr_int("reduce") == kMean);
      finish += fmt::format(
          "    {{\n      const typename R{0}::Acc value = {1}neighbours<R{0}, V>(a{0}));\n      if (rank == 0) {2}\n"
          "    }}\n",
          k, warp ? fmt::format("halve_warp<R{}>", k) + "(" : fmt::format("compiled::halve_block<R{}>(memory, ", k),
          out);
    }
    std::string packed;
    if (packs) {
      packed = "    if (fits) {\n";
      if (!warp && length <= 64) packed += walk_packs(4, add_one);
      packed += walk_packs(1, add_one) + "    }\n";
    }
    const std::string rows =
        warp ? fmt::format(
                   "  const int rank = static_cast<int>(threadIdx.x & 31u);\n"
                   "  for (int64_t row = int64_t{{blockIdx.x}} * 8 + threadIdx.x / 32; row < {}ll; row += "
                   "int64_t{{gridDim.x}} * 8) {{\n"
                   "    const int64_t output = row, begin = 0, count = {}ll;\n",
                   map_.outputs, map_.count)
             : fmt::format(
                   "  __shared__ uint64_t memory[kSlots];\n  const int rank = static_cast<int>(threadIdx.x);\n"
                   "  for (int64_t row = blockIdx.x; row < {0}ll; row += gridDim.x) {{\n"
                   "    const int64_t output = row / {1}ll, begin = row % {1}ll * kBlock;\n"
                   "    const int64_t count = {2}ll - begin < kBlock ? {2}ll - begin : kBlock;\n",
                   map_.outputs * leaves, leaves, map_.count);
    return fmt::format(R"(struct @Body {{
{body}}};
extern "C" __global__ void __launch_bounds__(256) @(const __grid_constant__ compiled::Args<{operands}> args) {{
  TAPE_KERNEL_BEGIN(args);
  constexpr int V = {width};
{rules}{fits}{scalars}{rows}{accumulators}    int64_t at = int64_t{{rank}} * V;
{packed}    for (; at < count; at += kSlots * V) {{
#pragma unroll {tail}
      for (int v = 0; v < V; ++v) {{
        if (at + v >= count) continue;
        const auto i = static_cast<{index}>(output * {count}ll + begin + at + v);
{axes}{results}        @Body::body({loads}{refs});
{add}      }}
    }}
{finish}  }}
}}
)",
                       fmt::arg("body", body(false)), fmt::arg("operands", map_.call.operands.size()),
                       fmt::arg("width", width), fmt::arg("rules", rules),
                       fmt::arg("fits", packs ? fmt::format("  const bool fits = {};\n", fit(width)) : std::string()),
                       fmt::arg("scalars", scalars()), fmt::arg("rows", rows), fmt::arg("accumulators", accumulators),
                       fmt::arg("packed", packed), fmt::arg("tail", length <= kLongest ? width : 1),
                       fmt::arg("index", index()), fmt::arg("count", map_.count), fmt::arg("axes", axes("i", 1)),
                       fmt::arg("results", results()), fmt::arg("loads", loads()), fmt::arg("refs", refs("r{}")),
                       fmt::arg("add", add_one), fmt::arg("finish", finish));
  }

 private:
  using Strides = std::vector<int64_t>;
  [[nodiscard]] const Strides& strides(uint32_t slot) const { return map_.nest.strides[map_.operand_of(slot)]; }
  [[nodiscard]] const char* type(uint32_t slot) const { return type_name(map_.body.dtypes[slot]); }
  [[nodiscard]] const char* index() const { return map_.nest.elements < kNarrow ? "uint32_t" : "uint64_t"; }
  [[nodiscard]] bool is_scalar(uint32_t slot) const {
    const Strides& all = strides(slot);
    return map_.body.is_source(slot) && std::all_of(all.begin(), all.end(), [](int64_t stride) { return stride == 0; });
  }
  /// One element for all of the innermost axis.
  [[nodiscard]] bool repeats(uint32_t slot) const { return strides(slot).back() == 0 && map_.body.is_source(slot); }

  /// Slots whose elements the kernel moves: sources, and the destinations of a MAP.
  [[nodiscard]] std::vector<uint32_t> moved() const {
    std::vector<uint32_t> slots = sources_;
    if (!map_.reduces) slots.insert(slots.end(), results_.begin(), results_.end());
    return slots;
  }
  /// Whether packs of `width` elements are whole everywhere.
  [[nodiscard]] bool packs_of(int width) const {
    const MapNest& nest = map_.nest;
    if (nest.sizes.size() > 1 && nest.sizes.back() % width != 0) return false;
    bool any = false;
    for (const uint32_t slot : moved()) {
      const Strides& all = strides(slot);
      if (all.back() == 0) continue;
      if (all.back() != 1) return false;
      for (size_t axis = 0; axis + 1 < all.size(); ++axis)
        if (all[axis] % width != 0) return false;
      any = true;
    }
    return any;
  }
  [[nodiscard]] int pack_width() const {
    size_t largest = 1;
    for (const uint32_t slot : moved())
      if (!repeats(slot)) largest = std::max(largest, size_of(map_.body.dtypes[slot]));
    for (int width = static_cast<int>(16 / largest); width > 1; width /= 2)
      if (packs_of(width) && static_cast<size_t>(width) * weight() <= kLongest) return width;
    return 1;
  }
  /// How long the text of the body becomes, in arithmetic commands.
  [[nodiscard]] size_t weight() const {
    size_t sum = 0;
    for (const size_t at : commands_) sum += map_.body.commands[at].op->bits == Bits::Functor ? 16 : 1;
    return sum;
  }
  /// Packs of a thread whose loads are in flight together: 64 bytes of sources where the body is light.
  [[nodiscard]] int unroll_of(int width) const {
    size_t packs = 0;
    for (const uint32_t slot : sources_)
      if (!repeats(slot)) ++packs;
    if (width == 1 || static_cast<size_t>(width) * weight() > 128) return 1;
    return packs <= 1 ? 4 : packs <= 3 ? 2 : 1;
  }

  [[nodiscard]] std::string rule(const char* type) const {
    switch (map_.call.command.attr_int("reduce")) {
      case kProd:
        return fmt::format("Product<Accumulator<{}>>", type);
      case kMax:
        return fmt::format("Maximum<ComputeType<{}>>", type);
      case kMin:
        return fmt::format("Minimum<ComputeType<{}>>", type);
      default:
        return fmt::format("Sum<Accumulator<{}>>", type);
    }
  }

  /// Whole packs of a slot of a reduction, the loads of `unroll` of them in flight together.
  [[nodiscard]] std::string walk_packs(int unroll, const std::string& add) const {
    return fmt::format(R"(      for (; at + ({unroll} - 1) * kSlots * V + V <= count; at += {unroll} * kSlots * V) {{
        constexpr int W = V, U = {unroll};
{arrays}#pragma unroll
        for (int u = 0; u < U; ++u) {{
          const auto i = static_cast<{index}>(output * {count}ll + begin + at + u * kSlots * V) / V;
{axes}{loads}        }}
#pragma unroll
        for (int u = 0; u < U; ++u) {{
#pragma unroll
          for (int v = 0; v < V; ++v) {{
            const int w = v;
{results}            @Body::body({values}{refs});
{add}          }}
        }}
      }}
)",
                       fmt::arg("unroll", unroll), fmt::arg("index", index()), fmt::arg("count", map_.count),
                       fmt::arg("axes", axes("i", 0)), fmt::arg("arrays", pack_arrays()),
                       fmt::arg("loads", load_packs()), fmt::arg("results", results()),
                       fmt::arg("values", pack_values()), fmt::arg("refs", refs("r{}")), fmt::arg("add", add));
  }

  /// The function `body(sources..., results...)`; of a check it returns what it refuses.
  [[nodiscard]] std::string body(bool check) const {
    std::string parameters, lines, results;
    for (const uint32_t slot : sources_) parameters += fmt::format("{}{} v{}", comma(parameters), type(slot), slot);
    if (!check)
      for (const uint32_t slot : results_) {
        parameters += fmt::format("{}{}& o{}", comma(parameters), type(slot), slot);
        results += fmt::format("    o{0} = v{0};\n", slot);
      }
    for (const uint32_t slot : locals_) lines += fmt::format("    {} v{}{{}};\n", type(slot), slot);
    for (const size_t at : commands_) lines += line(map_.body.commands[at], check ? static_cast<int64_t>(at) : -1);
    return fmt::format("  static __device__ __forceinline__ {} body({}) {{\n{}{}  }}\n",
                       check ? "compiled::Refusal" : "void", parameters, lines, check ? "    return {};\n" : results);
  }
  static const char* comma(const std::string& before) { return before.empty() ? "" : ", "; }

  [[nodiscard]] std::string line(const Command& command, int64_t checked) const {
    const uint32_t to = command.ids[0];
    const DType source = source_dtype(command, map_.body);
    const auto slot = [&](size_t i) { return fmt::format("v{}", command.ids[i]); };
    switch (command.op->opcode) {
      case Opcode::Copy:
        return fmt::format("    v{} = {};\n", to, slot(1));
      case Opcode::Fill:
        return fmt::format("    v{} = {};\n", to,
                           element(stored_value(command, map_.body.dtypes[to]), map_.body.dtypes[to]));
      case Opcode::Where:
        return fmt::format("    v{} = {} ? {} : {};\n", to, slot(1), slot(2), slot(3));
      case Opcode::Cast:
        return fmt::format("    v{} = convert<{}, {}>({});\n", to, type_name(source), type(to), slot(1));
      default:
        break;
    }
    const RowName row = row_name(command.op->opcode);
    const Attributes attributes = read_attributes(command, source);
    const std::string p = constant(attributes.p, attributes.i, source);
    const std::string q = constant(attributes.q, attributes.j, source);
    const bool binary = command.ids.size() > 2;
    const std::string b = !binary ? "{}" : command.ids[2] == kAbsent ? p : "compiled::wide(" + slot(2) + ")";
    std::string text;
    if (checked >= 0 && map_.may_refuse(command))
      text = fmt::format("    if (device::{}::faults({})) return {{{}, static_cast<int64_t>({})}};\n",
                         command.op->opcode == Opcode::Pow ? "Pow" : "ZeroDivisor", b, checked, b);
    return text + fmt::format("    v{} = compiled::Row<compiled::Form::{}, {}, {}>::{}({}, {}, {}, {}{});\n", to,
                              row.form, row.functor, type_name(source), command.accumulates() ? "add" : "play", slot(1),
                              b, p, q, command.accumulates() ? fmt::format(", v{}", to) : "");
  }

  // ---- pieces of the loops; s is a source of one element, p of packs, r a result ----

  [[nodiscard]] std::string address(uint32_t slot) const {
    return fmt::format("static_cast<{}*>(args.operand[{}])", type(slot), map_.operand_of(slot));
  }
  /// Sources of one element, read once.
  [[nodiscard]] std::string scalars() const {
    std::string text;
    for (const uint32_t slot : sources_)
      if (is_scalar(slot)) text += fmt::format("    const {} s{} = {}[0];\n", type(slot), slot, address(slot));
    return text;
  }
  /// Axes c0 ... of chunk or element `i` of `width` elements, 0 for W.
  [[nodiscard]] std::string axes(const std::string& i, int width) const {
    const MapNest& nest = map_.nest;
    const std::string by = width == 1 ? "" : " * W";
    if (nest.sizes.size() == 1) return fmt::format("    const auto c0 = {}{};\n", i, by);
    std::string text = fmt::format("    auto rest = {};\n", i);
    for (size_t axis = nest.sizes.size(); axis-- > 0;) {
      const bool inner = axis + 1 == nest.sizes.size();
      const std::string size = fmt::format("{}{}", nest.sizes[axis], inner && width != 1 ? " / W" : "");
      if (axis == 0)
        text += "    const auto c0 = rest;\n";
      else
        text +=
            fmt::format("    const auto c{0} = rest % ({1}){2};\n    rest /= ({1});\n", axis, size, inner ? by : "");
    }
    return text;
  }
  [[nodiscard]] std::string offset(uint32_t slot) const {
    std::string text;
    const Strides& all = strides(slot);
    for (size_t axis = 0; axis < all.size(); ++axis)
      if (all[axis] != 0) text += fmt::format("{}c{} * {}", text.empty() ? "" : " + ", axis, all[axis]);
    return text.empty() ? "0" : text;
  }
  [[nodiscard]] std::string loads() const {
    std::string text;
    for (const uint32_t slot : sources_)
      text += comma(text) +
              (is_scalar(slot) ? fmt::format("s{}", slot) : fmt::format("{}[{}]", address(slot), offset(slot)));
    return text;
  }
  [[nodiscard]] std::string results() const {
    std::string text;
    for (const uint32_t slot : results_) text += fmt::format("    {} r{};\n", type(slot), slot);
    return text;
  }
  /// ", r7, r9": the results, named by a pattern.
  [[nodiscard]] std::string refs(const char* pattern) const {
    std::string text;
    for (const uint32_t slot : results_)
      text += (text.empty() && sources_.empty() ? "" : ", ") + fmt::format(fmt::runtime(pattern), slot);
    return text;
  }
  [[nodiscard]] std::string stores(bool packs) const {
    std::string text;
    for (const uint32_t slot : results_)
      text += packs
                  ? fmt::format("          compiled::store_pack({} + ({}), r{});\n", address(slot), offset(slot), slot)
                  : fmt::format("    {}[{}] = r{};\n", address(slot), offset(slot), slot);
    return text;
  }
  [[nodiscard]] std::string result_packs() const {
    std::string text;
    for (const uint32_t slot : results_)
      text += fmt::format("          compiled::Pack<{}, W> r{};\n", type(slot), slot);
    return text;
  }
  [[nodiscard]] std::string pack_arrays() const {
    std::string text;
    for (const uint32_t slot : sources_) {
      if (is_scalar(slot)) continue;
      text += repeats(slot) ? fmt::format("      {} p{}[U];\n", type(slot), slot)
                            : fmt::format("      compiled::Pack<{}, W> p{}[U];\n", type(slot), slot);
    }
    return text;
  }
  [[nodiscard]] std::string load_packs() const {
    std::string text;
    for (const uint32_t slot : sources_) {
      if (is_scalar(slot)) continue;
      text += repeats(slot) ? fmt::format("          p{}[u] = {}[{}];\n", slot, address(slot), offset(slot))
                            : fmt::format("          p{}[u] = compiled::load_pack<W>({} + ({}));\n", slot,
                                          address(slot), offset(slot));
    }
    return text;
  }
  [[nodiscard]] std::string pack_values() const {
    std::string text;
    for (const uint32_t slot : sources_)
      text += comma(text) + (is_scalar(slot) ? fmt::format("s{}", slot)
                             : repeats(slot) ? fmt::format("p{}[u]", slot)
                                             : fmt::format("p{}[u].at[w]", slot));
    return text;
  }
  /// Whether the addresses of everything that moves in packs are whole packs.
  [[nodiscard]] std::string fit(int width) const {
    std::string text;
    for (const uint32_t slot : moved())
      if (!repeats(slot))
        text += fmt::format("{}compiled::fits<{}>({})", text.empty() ? "" : " && ", width, address(slot));
    return text.empty() ? "true" : text;
  }

  const MapCall& map_;
  std::vector<size_t> commands_;
  std::vector<uint32_t> results_, sources_, locals_;
};

}  // namespace

std::vector<MapPart> MapSource::add(const MapCall& map) {
  std::vector<MapPart> parts;
  if (const int64_t elements = map.checked_elements(); elements != 0) {
    MapPart part;
    part.kind = MapPart::Kind::Check;
    part.blocks = std::clamp<uint64_t>((static_cast<uint64_t>(elements) + 255) / 256, 1, kMostBlocks);
    part.name = name_of(Kernel(map, map.needed({}, true), {}).check(elements));
    parts.push_back(part);
  }
  if ((map.reduces ? map.outputs : map.nest.elements) == 0) return parts;
  std::map<size_t, std::vector<size_t>> groups;  // destinations that one pass does, by the size of their elements
  for (size_t k = 0; k < map.body.destinations; ++k)
    groups[map.reduces ? size_of(map.body.dtypes[map.body.sources + k]) : 0].push_back(k);
  for (const auto& [size, destinations] : groups) {
    MapPart part;
    std::vector<uint32_t> slots;
    for (const size_t k : destinations) slots.push_back(static_cast<uint32_t>(map.body.sources + k));
    const Kernel kernel(map, map.needed(slots, false), slots);
    part.kind = map.reduces ? MapPart::Kind::Reduce : MapPart::Kind::Map;
    part.destinations = destinations;
    part.name = name_of(map.reduces ? kernel.reduce(destinations, part.blocks) : kernel.map(part.blocks));
    parts.push_back(part);
  }
  return parts;
}

std::string MapSource::name_of(const std::string& text) {
  const auto [at, added] = names_.emplace(text, fmt::format("map{}", names_.size()));
  if (added) order_.push_back(&at->first);
  return at->second;
}

std::string MapSource::text() const {
  std::string program = "#include \"cuda_backend/kernels/map_compiled.cuh\"\nnamespace tape::cuda {\n";
  for (const std::string* text : order_) {
    const std::string& name = names_.at(*text);
    for (const char c : *text)
      if (c == '@')
        program += name;
      else
        program += c;
  }
  return program + "}  // namespace tape::cuda\n";
}

}  // namespace tape::cuda
