// One kernel called directly: operands in host memory, any number of threads, either instruction-set level. Lets a test
// compare bits of two ways to compute the same command.
#pragma once

#include <algorithm>
#include <cstring>
#include <memory>
#include <random>
#include <vector>

#include "cpu_reference/kernel.h"
#include "cpu_reference/kernels/dispatch.h"
#include "cpu_reference/pool.h"
#include "vm/module.h"

namespace tape::cpu::testing {

enum class Level { Base, V3 };

/// The kernel table of a level; nullptr where this build or processor has none.
[[nodiscard]] const Chooser* choosers(Level level);
/// The levels that this build and processor have; the baseline is always one.
[[nodiscard]] std::vector<Level> levels();

/// Numbers of threads that must not change a bit.
inline constexpr unsigned kThreadCounts[] = {1, 2, 3, 8};

template <class T>
inline constexpr DType kDTypeOf = DType::Bool;
template <>
inline constexpr DType kDTypeOf<double> = DType::F64;
template <>
inline constexpr DType kDTypeOf<float> = DType::F32;
template <>
inline constexpr DType kDTypeOf<Half> = DType::F16;
template <>
inline constexpr DType kDTypeOf<BFloat16> = DType::BF16;
template <>
inline constexpr DType kDTypeOf<int64_t> = DType::I64;
template <>
inline constexpr DType kDTypeOf<int32_t> = DType::I32;
template <>
inline constexpr DType kDTypeOf<uint8_t> = DType::U8;

class KernelCall {
 public:
  explicit KernelCall(std::string_view mnemonic) : command_(make_command(*find_op(mnemonic))) {}

  /// Appends an operand with these values; in the oracle's form (double values of a narrower dtype) with `declared`.
  template <class T>
  KernelCall& operand(const Shape& shape, const std::vector<T>& values) {
    return operand(shape, values, kDTypeOf<T>);
  }
  template <class T>
  KernelCall& operand(const Shape& shape, const std::vector<T>& values, DType declared) {
    View view;
    view.dtype = declared;
    view.storage = kDTypeOf<T>;
    view.shape = shape;
    view.strides = row_major_strides(shape);
    view.elements = shape.elements();
    const auto bytes = static_cast<size_t>(view.elements) * sizeof(T);
    memory_.push_back(std::make_unique<std::byte[]>(bytes + 1));
    view.data = memory_.back().get();
    if (!values.empty()) std::memcpy(view.data, values.data(), bytes);
    records_.push_back(std::make_unique<Tensor>());
    records_.back()->name = "t" + std::to_string(records_.size() - 1);
    view.tensor = records_.back().get();
    return push(view);
  }
  KernelCall& absent() {
    push(View{});
    command_.ids.back() = kAbsent;
    return *this;
  }
  /// Looks at the memory of the i-th tensor as another shape, with strides in elements.
  KernelCall& view(size_t i, const Shape& shape, std::vector<int64_t> strides) {
    views_[i].shape = shape;
    views_[i].elements = shape.elements();
    std::copy(strides.begin(), strides.end(), views_[i].strides.begin());
    return *this;
  }
  /// The operands between these two are one list.
  KernelCall& begin_list() {
    in_list_ = true;
    return *this;
  }
  KernelCall& end_list() {
    in_list_ = false;
    command_.ends.push_back(static_cast<uint32_t>(command_.ids.size()));
    return *this;
  }
  /// A destination, filled with ones.
  template <class T>
  KernelCall& destination(const Shape& shape) {
    return operand(shape, std::vector<T>(static_cast<size_t>(shape.elements()), static_cast<T>(1.0f)));
  }
  KernelCall& attr(std::string_view name, int64_t value) {
    set_int(command_, name, value);
    return *this;
  }
  KernelCall& attr(std::string_view name, double value) {
    set_float(command_, name, value);
    return *this;
  }
  KernelCall& attr(std::string_view name, std::vector<int64_t> value) {
    set_list(command_, name, std::move(value));
    return *this;
  }

  /// Optional operands behind the last given one are absent.
  void run(unsigned threads = 1, Level level = Level::Base, bool canonical_matmul = false) {
    const auto operands = command_.op->operands();
    while (command_.ends.size() < operands.size() && operands[command_.ends.size()].kind == OperandKind::Optional)
      absent();
    Call call;
    call.command = &command_;
    std::copy(command_.ends.begin(), command_.ends.end(), call.ends.begin());
    call.operands = views_;
    call.accumulate = command_.accumulates();
    const std::unique_ptr<Pool> pool = make_pool(threads);
    Context context;
    context.pool = pool.get();
    context.canonical_matmul = canonical_matmul;
    const Kernel kernel = choosers(level)[row_of(*command_.op)](call, context);
    std::vector<std::byte> scratch(call.scratch_bytes + 1);
    call.scratch = scratch.data();
    kernel(call, context);
  }

  /// The values of the i-th tensor.
  template <class T>
  [[nodiscard]] std::vector<T> values(size_t i) const {
    const View& view = views_[i];
    std::vector<T> result(static_cast<size_t>(view.elements));
    if (!result.empty()) std::memcpy(result.data(), view.data, result.size() * sizeof(T));
    return result;
  }

 private:
  KernelCall& push(const View& view) {
    const auto id = static_cast<uint32_t>(views_.size());
    if (in_list_)
      command_.ids.push_back(id);
    else
      command_.push_operand(id);
    views_.push_back(view);
    return *this;
  }

  Command command_;
  bool in_list_ = false;
  std::vector<View> views_;
  std::vector<std::unique_ptr<std::byte[]>> memory_;
  std::vector<std::unique_ptr<Tensor>> records_;
};

/// Equal bits, all NaNs equal.
template <class T>
[[nodiscard]] bool same_bits(const std::vector<T>& a, const std::vector<T>& b) {
  if (a.size() != b.size()) return false;
  for (size_t i = 0; i < a.size(); ++i) {
    if constexpr (std::is_floating_point_v<T>)
      if (a[i] != a[i] && b[i] != b[i]) continue;
    if (std::memcmp(&a[i], &b[i], sizeof(T)) != 0) return false;
  }
  return true;
}

/// Uniform in [-1, 1), of full precision in T.
template <class T>
[[nodiscard]] std::vector<T> random_values(int64_t n, uint32_t seed) {
  std::mt19937 engine(seed);
  std::vector<T> values(static_cast<size_t>(n));
  for (T& value : values) {
    const double unit = static_cast<double>(static_cast<int32_t>(engine())) * 0x1p-31;
    if constexpr (std::is_integral_v<T>)
      value = static_cast<T>(engine());
    else if constexpr (std::is_same_v<T, double>)
      value = unit;
    else
      value = static_cast<T>(static_cast<float>(unit));
  }
  return values;
}

}  // namespace tape::cpu::testing
