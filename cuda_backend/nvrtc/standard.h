// What NVRTC is given under the names of the standard headers that device code includes: no toolkit and no C++ library
// need be installed where programs are compiled.
#pragma once

using int8_t = signed char;
using uint8_t = unsigned char;
using int16_t = short;
using uint16_t = unsigned short;
using int32_t = int;
using uint32_t = unsigned int;
using int64_t = long long;
using uint64_t = unsigned long long;
using uintptr_t = unsigned long long;
static_assert(sizeof(int64_t) == 8 && sizeof(void*) == 8);

namespace std {

template <class A, class B>
inline constexpr bool is_same_v = false;
template <class A>
inline constexpr bool is_same_v<A, A> = true;
template <class T>
inline constexpr bool is_floating_point_v = is_same_v<T, float> || is_same_v<T, double>;
template <class T>
inline constexpr bool is_integral_v =
    is_same_v<T, bool> || is_same_v<T, char> || is_same_v<T, signed char> || is_same_v<T, unsigned char> ||
    is_same_v<T, short> || is_same_v<T, unsigned short> || is_same_v<T, int> || is_same_v<T, unsigned int> ||
    is_same_v<T, long> || is_same_v<T, unsigned long> || is_same_v<T, long long> || is_same_v<T, unsigned long long>;
template <class T>
inline constexpr bool is_unsigned_v = is_integral_v<T> && !(static_cast<T>(-1) < static_cast<T>(0));

template <bool kFirst, class A, class B>
struct conditional {
  using type = A;
};
template <class A, class B>
struct conditional<false, A, B> {
  using type = B;
};
template <bool kFirst, class A, class B>
using conditional_t = typename conditional<kFirst, A, B>::type;
template <bool kGiven, class T = void>
struct enable_if {};
template <class T>
struct enable_if<true, T> {
  using type = T;
};
template <bool kGiven, class T = void>
using enable_if_t = typename enable_if<kGiven, T>::type;

template <class T>
struct make_unsigned;
template <>
struct make_unsigned<int8_t> {
  using type = uint8_t;
};
template <>
struct make_unsigned<uint8_t> {
  using type = uint8_t;
};
template <>
struct make_unsigned<int16_t> {
  using type = uint16_t;
};
template <>
struct make_unsigned<int32_t> {
  using type = uint32_t;
};
template <>
struct make_unsigned<int64_t> {
  using type = uint64_t;
};
template <class T>
using make_unsigned_t = typename make_unsigned<T>::type;

template <class T>
struct numeric_limits {
  static constexpr bool is_signed = static_cast<T>(-1) < static_cast<T>(0);
  static constexpr int bits = 8 * sizeof(T);
  __host__ __device__ static constexpr T lowest() { return is_signed ? static_cast<T>(1ull << (bits - 1)) : T{}; }
  __host__ __device__ static constexpr T max() {
    return is_signed ? static_cast<T>((1ull << (bits - 1)) - 1) : static_cast<T>(~0ull);
  }
};
template <>
struct numeric_limits<bool> {
  __host__ __device__ static constexpr bool lowest() { return false; }
  __host__ __device__ static constexpr bool max() { return true; }
};
template <>
struct numeric_limits<float> {
  __host__ __device__ static constexpr float infinity() { return __builtin_bit_cast(float, 0x7F800000u); }
};
template <>
struct numeric_limits<double> {
  __host__ __device__ static constexpr double infinity() { return __builtin_bit_cast(double, 0x7FF0000000000000ull); }
};

}  // namespace std
