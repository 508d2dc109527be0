// Initial values. A value is a function of (seed, tensor name, position) alone: Philox with the seed as key and the
// hash of the name as stream, computed from + - * / sqrt, so every machine starts from the same bits.
#include <fmt/format.h>
#include <xxhash.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <numeric>
#include <span>
#include <vector>

#include "opcodes/device/random.h"
#include "vm/command_buffer.h"
#include "vm/host_array.h"
#include "vm/machine.h"

namespace tape {
namespace {

uint64_t stream_of(const Tensor& tensor) {
  return XXH3_64bits(tensor.name.data(), tensor.name.size()) | 1;  // stream 0 is that of .rng records
}

template <class Value>
std::span<const std::byte> bytes_of(const std::vector<Value>& values) {
  return std::as_bytes(std::span<const Value>(values));
}

template <class Value>
std::vector<std::byte> converted(const std::vector<Value>& values, DType from, DType to) {
  std::vector<std::byte> bytes(values.size() * size_of(to));
  convert(bytes_of(values), from, bytes, to);
  return bytes;
}

/// The bits of an element of this value.
uint64_t element_bits(double value, DType dtype) {
  const std::vector<std::byte> bytes = converted(std::vector<double>{value}, DType::F64, dtype);
  uint64_t bits = 0;
  std::memcpy(&bits, bytes.data(), bytes.size());
  return bits;
}

device::Grid grid_of(DType dtype) {
  return dtype == DType::F16 ? device::Grid::F16 : dtype == DType::BF16 ? device::Grid::BF16 : device::Grid::F32;
}

std::vector<float> uniform_values(const Initialiser& init) {
  std::vector<float> values(init.elements);
  const device::Grid grid = grid_of(init.dtype);
  for (size_t i = 0; i < values.size(); i += 4) {
    const device::RandomBlock block = device::random_block(init.seed, i / 4, init.stream);
    for (size_t j = i; j < std::min(values.size(), i + 4); ++j)
      values[j] = device::uniform(block.word[j - i], init.a, init.b, grid);
  }
  return values;
}

std::vector<float> normal_values(const Initialiser& init) {
  std::vector<float> values(init.elements);
  for (size_t i = 0; i < values.size(); i += 4) {
    float four[4];
    device::normal_values(device::random_block(init.seed, i / 4, init.stream), init.a, init.b, four);
    std::copy_n(four, std::min<size_t>(4, values.size() - i), values.begin() + static_cast<std::ptrdiff_t>(i));
  }
  return values;
}

struct Fans {
  double in = 1, out = 1;
};
/// Rank 2 is [in, out]; rank 3 and more is [out, in, kernel...].
Fans fans_of(const Shape& shape) {
  if (shape.rank() == 2) return {static_cast<double>(shape[0]), static_cast<double>(shape[1])};
  double area = 1;
  for (int axis = 2; axis < shape.rank(); ++axis) area *= static_cast<double>(shape[axis]);
  return {static_cast<double>(shape[1]) * area, static_cast<double>(shape[0]) * area};
}

/// `count` vectors of `length` made orthonormal in place: modified Gram-Schmidt, twice, so that they are orthogonal to
/// rounding; the diagonal of R is positive.
void orthonormalise(std::vector<double>& vectors, size_t count, size_t length) {
  for (size_t j = 0; j < count; ++j) {
    double* const v = vectors.data() + j * length;
    for (int pass = 0; pass < 2; ++pass)
      for (size_t i = 0; i < j; ++i) {
        const double* const q = vectors.data() + i * length;
        double dot = 0;
        for (size_t k = 0; k < length; ++k) dot += q[k] * v[k];
        for (size_t k = 0; k < length; ++k) v[k] -= dot * q[k];
      }
    double square = 0;
    for (size_t k = 0; k < length; ++k) square += v[k] * v[k];
    const double norm = std::sqrt(square);
    for (size_t k = 0; k < length; ++k) v[k] /= norm;
  }
}

Initialiser described(const Tensor& tensor, Initialiser::Form form) {
  Initialiser init;
  init.form = form;
  init.dtype = tensor.dtype;
  init.elements = static_cast<uint64_t>(tensor.shape.elements());
  return init;
}
Initialiser random(const Tensor& tensor, Initialiser::Form form, double a, double b) {
  Initialiser init = described(tensor, form);
  init.a = static_cast<float>(a);
  init.b = static_cast<float>(b);
  init.seed = static_cast<uint64_t>(tensor.init.seed);
  init.stream = stream_of(tensor);
  return init;
}
Initialiser constant(const Tensor& tensor, double value) {
  Initialiser init = described(tensor, Initialiser::Form::Fill);
  init.element = element_bits(value, tensor.dtype);
  return init;
}
/// 1 where the last two positions are equal.
Initialiser eye(const Tensor& tensor) {
  Initialiser init = described(tensor, Initialiser::Form::Eye);
  init.columns = static_cast<uint64_t>(tensor.shape[tensor.shape.rank() - 1]);
  init.rows = static_cast<uint64_t>(tensor.shape[tensor.shape.rank() - 2]);
  init.element = element_bits(1, tensor.dtype);
  init.other = element_bits(0, tensor.dtype);
  return init;
}

/// The tensor as a matrix [first axis, the others]: orthonormal columns, or rows where there are fewer of them.
std::vector<double> orthogonal_values(const Tensor& tensor, double gain) {
  const auto elements = static_cast<size_t>(tensor.shape.elements());
  if (elements == 0) return {};
  const auto rows = static_cast<size_t>(tensor.shape[0]);
  const size_t columns = elements / rows;
  const std::vector<float> drawn = normal_values(random(tensor, Initialiser::Form::Normal, 0, 1));
  const bool by_column = rows >= columns;
  const size_t count = by_column ? columns : rows;
  const size_t length = by_column ? rows : columns;
  std::vector<double> vectors(elements);
  const auto at = [&](size_t vector, size_t k) { return by_column ? k * columns + vector : vector * columns + k; };
  for (size_t j = 0; j < count; ++j)
    for (size_t k = 0; k < length; ++k) vectors[j * length + k] = static_cast<double>(drawn[at(j, k)]);
  orthonormalise(vectors, count, length);
  std::vector<double> values(elements);
  for (size_t j = 0; j < count; ++j)
    for (size_t k = 0; k < length; ++k) values[at(j, k)] = gain * vectors[j * length + k];
  return values;
}

std::vector<std::byte> made(const Initialiser& init) {
  const size_t size = size_of(init.dtype);
  std::vector<std::byte> bytes(init.elements * size);
  switch (init.form) {
    case Initialiser::Form::Fill:
      for (size_t i = 0; i < init.elements; ++i) std::memcpy(bytes.data() + i * size, &init.element, size);
      return bytes;
    case Initialiser::Form::Eye:
      for (size_t i = 0; i < init.elements; ++i)
        std::memcpy(bytes.data() + i * size,
                    i % init.columns == i / init.columns % init.rows ? &init.element : &init.other, size);
      return bytes;
    case Initialiser::Form::Iota: {
      std::vector<int64_t> values(init.elements);
      std::iota(values.begin(), values.end(), int64_t{0});
      return converted(values, DType::I64, init.dtype);
    }
    case Initialiser::Form::Uniform:
      return converted(uniform_values(init), DType::F32, init.dtype);
    case Initialiser::Form::Normal:
      return converted(normal_values(init), DType::F32, init.dtype);
  }
  return bytes;
}

bool is_random(InitKind kind) {
  switch (kind) {
    case InitKind::Uniform:
    case InitKind::Normal:
    case InitKind::KaimingUniform:
    case InitKind::KaimingNormal:
    case InitKind::XavierUniform:
    case InitKind::XavierNormal:
    case InitKind::Orthogonal:
    case InitKind::Seed:
      return true;
    case InitKind::None:
    case InitKind::Zeros:
    case InitKind::Ones:
    case InitKind::Fill:
    case InitKind::Iota:
    case InitKind::Eye:
      return false;
  }
  return false;
}

/// Wraps as two's complement.
int64_t sum(int64_t a, int64_t b) {
  return static_cast<int64_t>(static_cast<uint64_t>(a) + static_cast<uint64_t>(b));
}

void add_shuffle_seed(Module& module, TapeId id, int64_t offset) {
  const auto shuffles = [](const Command& command) {
    return command.op->attribute("shuffle_seed") >= 0 && command.has_attr("shuffle_seed");
  };
  for (Decoder decoder(module.tapes[id].words, module); !decoder.done();)
    if (!decoder.next().command) return;  // the verifier refuses this tape
  std::vector<PlacedCommand> commands = commands_of(module, module.tapes[id]);
  if (std::none_of(commands.begin(), commands.end(), [&](const PlacedCommand& each) { return shuffles(each.command); }))
    return;
  module.tapes[id].words.clear();
  module.tapes[id].lines.clear();
  TapeBuilder builder(module, id);
  for (PlacedCommand& each : commands) {
    if (shuffles(each.command))
      set_int(each.command, "shuffle_seed", sum(each.command.attr_int("shuffle_seed"), offset));
    builder.add(each.command, each.location);
  }
}

}  // namespace

std::optional<Initialiser> initialiser_of(const Tensor& tensor) {
  using Form = Initialiser::Form;
  const Init& init = tensor.init;
  switch (init.kind) {
    case InitKind::None:
    case InitKind::Zeros:
    case InitKind::Orthogonal:
    case InitKind::Seed:
      return std::nullopt;
    case InitKind::Ones:
      return constant(tensor, 1);
    case InitKind::Fill:
      return constant(tensor, init.a);
    case InitKind::Iota:
      return described(tensor, Form::Iota);
    case InitKind::Eye:
      return eye(tensor);
    case InitKind::Uniform:
      return random(tensor, Form::Uniform, init.a, init.b);
    case InitKind::Normal:
      return random(tensor, Form::Normal, init.a, init.b);
    case InitKind::KaimingUniform: {
      const double bound = std::sqrt(6 / fans_of(tensor.shape).in);
      return random(tensor, Form::Uniform, -bound, bound);
    }
    case InitKind::KaimingNormal:
      return random(tensor, Form::Normal, 0, std::sqrt(2 / fans_of(tensor.shape).in));
    case InitKind::XavierUniform: {
      const Fans fans = fans_of(tensor.shape);
      const double bound = std::sqrt(6 / (fans.in + fans.out));
      return random(tensor, Form::Uniform, -bound, bound);
    }
    case InitKind::XavierNormal: {
      const Fans fans = fans_of(tensor.shape);
      return random(tensor, Form::Normal, 0, std::sqrt(2 / (fans.in + fans.out)));
    }
  }
  return std::nullopt;
}

std::vector<std::byte> initial_value(const Tensor& tensor) {
  if (tensor.init.kind == InitKind::Orthogonal)
    return converted(orthogonal_values(tensor, tensor.init.a), DType::F64, tensor.dtype);
  if (tensor.init.kind == InitKind::Seed)
    return converted(std::vector<int64_t>{tensor.init.seed, 0}, DType::I64, tensor.dtype);
  const std::optional<Initialiser> plain = initialiser_of(tensor);
  return plain ? made(*plain) : std::vector<std::byte>(byte_size(tensor));
}

void add_seed(Module& module, int64_t offset) {
  for (Tensor& tensor : module.tensors)
    if (is_random(tensor.init.kind)) tensor.init.seed = sum(tensor.init.seed, offset);
  for (TapeId tape = 0; tape < module.tapes.size(); ++tape) add_shuffle_seed(module, tape, offset);
}

}  // namespace tape
