// Control rows and checks. NOP, CALL, REPEAT, WHILE and END have no kernel: the executable plays their structure.
// ASSERT_* write nothing; floats are compared in f64 whatever their dtype, tolerances rounded to the compute type.
#include <fmt/format.h>

#include <cmath>

#include "cpu_reference/kernel.h"
#include "cpu_reference/kernels/dispatch.h"
#include "cpu_reference/kernels/fault_text.h"

namespace tape::cpu {
namespace {

template <class T>
bool finite(T value) {
  if constexpr (std::is_same_v<T, double>)
    return std::isfinite(value);
  else
    return std::isfinite(static_cast<float>(value));
}

void assert_finite(const Call& call, Context&) {
  for (const View& view : call.list(0))
    dispatch_float(view.storage, [&](auto type) {
      using T = typename decltype(type)::type;
      const T* const at = view.as<const T>();
      for (int64_t i = 0; i < view.elements; ++i)
        if (!finite(at[i])) throw Fault(fmt::format("{} is {}", element_name(view, i), element_value(view, i)));
    });
}

/// By how much a misses b: |a - b| - (atol + rtol |b|), infinite for a NaN or infinity that the other does not match.
struct Miss {
  double distance = 0, allowed = 0;
  [[nodiscard]] bool misses() const { return !(distance <= allowed); }
  /// Larger is worse. Both infinite: the first stays the worst.
  [[nodiscard]] double excess() const { return std::isinf(distance) ? distance : distance - allowed; }
};

template <class T>
Miss compare(T a, T b, double atol, double rtol) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  if constexpr (std::is_integral_v<T>) {
    const auto distance = static_cast<__int128>(a) - static_cast<__int128>(b);
    return {std::fabs(static_cast<double>(distance)), atol + rtol * std::fabs(static_cast<double>(b))};
  } else {
    using C = ComputeType<T>;
    const double x = static_cast<double>(static_cast<C>(a)), y = static_cast<double>(static_cast<C>(b));
    if (std::isnan(x) || std::isnan(y)) return {std::isnan(x) && std::isnan(y) ? 0 : kInfinity, 0};
    if (std::isinf(x) || std::isinf(y)) return {x == y ? 0 : kInfinity, 0};
    return {std::fabs(x - y), atol + rtol * std::fabs(y)};
  }
}

template <class T>
void assert_close(const Call& call, Context&) {
  const View& a = call.operand(0);
  const View& b = call.operand(1);
  const double atol = call.floats[0], rtol = call.floats[1];
  int64_t worst = -1;
  Miss most;
  for (int64_t i = 0; i < a.elements; ++i) {
    const Miss miss = compare(a.as<const T>()[i], b.as<const T>()[i], atol, rtol);
    if (!miss.misses() || (worst >= 0 && !(miss.excess() > most.excess()))) continue;
    worst = i;
    most = miss;
  }
  if (worst < 0) return;
  throw Fault(fmt::format("{} is {}, {} is {}: |a - b| = {} is above {}", element_name(a, worst),
                          element_value(a, worst), element_name(b, worst), element_value(b, worst), most.distance,
                          most.allowed));
}

template <class T>
bool same_bits(T a, T b) {
  if constexpr (std::is_same_v<T, double>) {
    return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b) || (std::isnan(a) && std::isnan(b));
  } else if constexpr (std::is_same_v<T, float> || is_half_type<T>) {
    const auto x = static_cast<float>(a), y = static_cast<float>(b);
    return std::bit_cast<uint32_t>(x) == std::bit_cast<uint32_t>(y) || (std::isnan(x) && std::isnan(y));
  } else {
    return a == b;
  }
}

template <class T>
void assert_equal(const Call& call, Context&) {
  const View& a = call.operand(0);
  const View& b = call.operand(1);
  for (int64_t i = 0; i < a.elements; ++i)
    if (!same_bits(a.as<const T>()[i], b.as<const T>()[i]))
      throw Fault(fmt::format("{} is {}, {} is {}", element_name(a, i), element_value(a, i), element_name(b, i),
                              element_value(b, i)));
}

}  // namespace

Kernel choose_Nop(Call&, const Context&) {
  return nullptr;
}
Kernel choose_Call(Call&, const Context&) {
  return nullptr;
}
Kernel choose_Repeat(Call&, const Context&) {
  return nullptr;
}
Kernel choose_While(Call&, const Context&) {
  return nullptr;
}
Kernel choose_End(Call&, const Context&) {
  return nullptr;
}

Kernel choose_AssertFinite(Call&, const Context&) {
  return &assert_finite;
}

Kernel choose_AssertClose(Call& call, const Context&) {
  const DType dtype = call.operand(0).dtype;
  for (const char* name : {"atol", "rtol"}) {
    const double value = call.command->attr_float(name);
    call.floats.push_back(is_float(dtype) && compute_of(dtype) == DType::F32 ? double{static_cast<float>(value)}
                                                                             : value);
  }
  return dispatch(call.operand(0).storage, [](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return &assert_close<T>;
  });
}

Kernel choose_AssertEqual(Call& call, const Context&) {
  return dispatch(call.operand(0).storage, [](auto type) -> Kernel {
    using T = typename decltype(type)::type;
    return &assert_equal<T>;
  });
}

}  // namespace tape::cpu
