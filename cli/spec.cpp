// See spec.h.
#include "cli/spec.h"

#include <fmt/format.h>

#include <algorithm>
#include <charconv>
#include <cmath>
#include <cstring>
#include <filesystem>

#include "cli/source.h"
#include "vm/machine.h"

namespace tape::cli {
namespace {

/// "2x3xf32" -> dtype and shape; nullopt when the text is no such prefix.
struct Typed {
  DType dtype = DType::F32;
  Shape shape;
  std::string values;
};
std::optional<Typed> typed_prefix(const std::string& spec) {
  const size_t equals = spec.find('=');
  if (equals == std::string::npos) return std::nullopt;
  Typed typed;
  size_t begin = 0;
  for (;;) {
    const size_t end = std::min(spec.find('x', begin), equals);
    const std::string_view part = std::string_view(spec).substr(begin, end - begin);
    if (const DTypeInfo* info = find_dtype(part); info != nullptr && end == equals) {
      typed.dtype = info->dtype;
      typed.values = spec.substr(equals + 1);
      return typed;
    }
    int64_t dim = 0;
    const auto [stop, error] = std::from_chars(part.data(), part.data() + part.size(), dim);
    const bool number = !part.empty() && error == std::errc() && stop == part.data() + part.size() && dim >= 0;
    if (!number || end == equals || typed.shape.rank() == limits::max_rank) return std::nullopt;
    typed.shape.push_back(dim);
    begin = end + 1;
  }
}

std::vector<std::string_view> words_of(std::string_view text) {
  std::vector<std::string_view> words;
  for (size_t at = 0; at < text.size();) {
    const size_t begin = text.find_first_not_of(" \t\n\r", at);
    if (begin == std::string_view::npos) break;
    const size_t end = std::min(text.find_first_of(" \t\n\r", begin), text.size());
    words.push_back(text.substr(begin, end - begin));
    at = end;
  }
  return words;
}

template <class T>
bool parse(std::string_view word, T& value) {
  if (word.starts_with('+')) word.remove_prefix(1);
  const auto [stop, error] = std::from_chars(word.data(), word.data() + word.size(), value);
  return error == std::errc() && stop == word.data() + word.size();
}

bool is_number(std::string_view word) {
  double value = 0;
  return parse(word, value);
}

HostArray parse_values(const std::string& text, DType dtype, const Shape& shape, const std::string& what) {
  const std::vector<std::string_view> words = words_of(text);
  const auto n = static_cast<size_t>(shape.checked_elements().value_or(-1));
  if (words.size() != n) usage_error(fmt::format("{}: wanted {} values, got {}", what, n, words.size()));
  HostArray wide{is_float(dtype) ? DType::F64 : DType::I64, shape, std::vector<std::byte>(n * 8)};
  for (size_t i = 0; i < n; ++i) {
    double real = 0;
    int64_t whole = 0;
    const bool parsed = is_float(dtype) ? parse(words[i], real) : parse(words[i], whole);
    if (!parsed)
      usage_error(fmt::format("{}: `{}` is not a {}", what, words[i], is_float(dtype) ? "number" : "whole number"));
    std::memcpy(wide.bytes.data() + i * 8, is_float(dtype) ? static_cast<void*>(&real) : &whole, 8);
  }
  if (!is_float(dtype)) return convert_input(wide, dtype, what);
  HostArray array{dtype, shape, std::vector<std::byte>(n * size_of(dtype))};
  convert(wide.bytes, wide.dtype, array.bytes, dtype);
  return array;
}

/// Values keyed by (seed, tensor name), so that other tensors never change them.
HostArray random_values(const std::string& kind, const Wanted& wanted) {
  Tensor tensor;
  tensor.name = wanted.name;
  tensor.dtype = is_float(wanted.dtype) ? wanted.dtype : DType::F32;
  tensor.shape = wanted.shape;
  const std::string chosen = !kind.empty() ? kind : is_float(wanted.dtype) ? "normal" : "integers";
  if (chosen == "normal") {
    tensor.init = {InitKind::Normal, 0, 1, wanted.seed};
  } else if (chosen == "uniform") {
    tensor.init = {InitKind::Uniform, 0, 1, wanted.seed};
  } else if (chosen == "integers") {
    const double low = wanted.dtype == DType::U8 || wanted.dtype == DType::Bool ? 0 : -4;
    tensor.init = {InitKind::Uniform, low, wanted.dtype == DType::Bool ? 2.0 : 5.0, wanted.seed};
  } else {
    usage_error(fmt::format("{}: random:{} is not one of random, random:normal, random:uniform, random:integers",
                            wanted.name, kind));
  }
  if (!is_float(wanted.dtype) && chosen != "integers")
    usage_error(fmt::format("{}: random:{} draws floats, it is {}", wanted.name, chosen, name_of(wanted.dtype)));
  const std::vector<std::byte> drawn = initial_value(tensor);
  HostArray array{wanted.dtype, wanted.shape,
                  std::vector<std::byte>(static_cast<size_t>(wanted.shape.elements()) * size_of(wanted.dtype))};
  if (chosen != "integers") {
    array.bytes = drawn;
    return array;
  }
  for (size_t i = 0; i < static_cast<size_t>(wanted.shape.elements()); ++i) {
    const double value = std::floor(element_as_f64(drawn, tensor.dtype, i));
    const std::span<std::byte> to = std::span(array.bytes).subspan(i * size_of(wanted.dtype), size_of(wanted.dtype));
    convert(std::as_bytes(std::span(&value, 1)), DType::F64, to, wanted.dtype);
  }
  return array;
}

/// The bytes of a file of no format, as many as the shape wants.
HostArray read_raw(const std::string& path, DType dtype, const Shape& shape, const std::string& what) {
  HostArray array{dtype, shape, io::read_file(path)};
  const auto bytes = static_cast<size_t>(shape.elements()) * size_of(dtype);
  if (array.bytes.size() != bytes)
    usage_error(fmt::format("{}: {} has {} bytes, wanted {} for {}{}", what, path, array.bytes.size(), bytes,
                            name_of(dtype), shape.text()));
  return array;
}

HostArray fitted(const HostArray& array, const Wanted& wanted) {
  const Shape& got = array.shape;
  bool fits = got == wanted.shape;
  if (wanted.rows) {
    Shape whole{got.rank() > 0 ? got[0] : 0};
    for (const int64_t dim : wanted.shape.dims())
      if (whole.rank() < limits::max_rank) whole.push_back(dim);
    fits = got == whole;
  }
  if (!fits)
    usage_error(fmt::format("{}: wanted {}, got {}{}", wanted.name, wanted.text(), name_of(array.dtype), got.text()));
  return convert_input(array, wanted.dtype, wanted.name);
}

bool all_numbers(const std::string& text) {
  const std::vector<std::string_view> words = words_of(text);
  return !words.empty() && std::all_of(words.begin(), words.end(), is_number);
}

}  // namespace

std::string Wanted::text() const {
  std::string dims = shape.text();
  if (rows) dims.insert(1, shape.rank() == 0 ? "*" : "*,");
  return std::string(name_of(dtype)) + dims;
}

std::pair<std::string, std::string> split_assignment(const std::string& text, const char* option) {
  const size_t equals = text.find('=');
  if (equals == std::string::npos || equals == 0 || equals + 1 == text.size())
    usage_error(fmt::format("{} wants NAME=SPEC, got `{}`", option, text));
  return {text.substr(0, equals), text.substr(equals + 1)};
}

HostArray read_spec(const std::string& spec, const Wanted& wanted) {
  if (spec == "-") return fitted(io::parse_npy(io::read_file("-"), "<stdin>"), wanted);
  const bool random = spec == "random" || spec.starts_with("random:");
  if ((random || spec == "zeros") && wanted.rows)
    usage_error(fmt::format("{}: {} does not say how many rows", wanted.name, spec));
  if (random) return random_values(spec.size() > 7 ? spec.substr(7) : "", wanted);
  if (spec == "zeros")
    return {wanted.dtype, wanted.shape,
            std::vector<std::byte>(static_cast<size_t>(wanted.shape.elements()) * size_of(wanted.dtype))};
  if (const std::optional<Typed> typed = typed_prefix(spec)) {
    if (!typed->shape.checked_elements())
      usage_error(fmt::format("{}: shape {} is too large", wanted.name, typed->shape.text()));
    if (!typed->values.starts_with('@'))
      return fitted(parse_values(typed->values, typed->dtype, typed->shape, wanted.name), wanted);
    const std::string path = typed->values.substr(1);
    const bool named = path.ends_with(".npy") || !io::split_archive(path).second.empty();
    HostArray array = named ? io::read_array(path) : read_raw(path, typed->dtype, typed->shape, wanted.name);
    if (array.dtype != typed->dtype || array.shape != typed->shape)
      usage_error(fmt::format("{}: {} holds {}{}, not {}{}", wanted.name, path, name_of(array.dtype),
                              array.shape.text(), name_of(typed->dtype), typed->shape.text()));
    return fitted(array, wanted);
  }
  if (all_numbers(spec) && !wanted.rows) return parse_values(spec, wanted.dtype, wanted.shape, wanted.name);
  if (const auto words = words_of(spec); words.size() > 1 && is_number(words[0]) && !std::filesystem::exists(spec))
    usage_error(fmt::format("{}: `{}` is neither values nor a file", wanted.name, spec));
  return fitted(io::read_array(spec), wanted);
}

void Outputs::check(const std::string& name, const std::string& spec) {
  if (spec == "-" || spec.ends_with(".npy") || (spec.size() > 1 && spec[0] == '@') ||
      !io::split_archive(spec).second.empty())
    return;
  usage_error(fmt::format("--out {}={}: an output is -, file.npy, file.npz[:key], file.safetensors[:key] or @file",
                          name, spec));
}

void Outputs::want_writable(const std::string& spec) {
  if (spec == "-" || spec == "@-") return;
  if (spec[0] == '@') return io::want_writable(spec.substr(1));
  const std::string archive = io::split_archive(spec).first;
  io::want_writable(archive.empty() ? spec : archive);
}

void Outputs::add(const std::string& name, const std::string& spec, HostArray array) {
  const auto [archive, key] = io::split_archive(spec);
  if (spec == "-") {
    printed_.emplace_back(name, std::move(array));
  } else if (spec[0] == '@') {
    raw_.emplace_back(spec.substr(1), std::move(array.bytes));
  } else if (archive.empty()) {
    npy_.emplace_back(spec, std::move(array));
  } else {
    const auto at = std::find_if(archives_.begin(), archives_.end(),
                                 [&, &file = archive](const auto& item) { return item.first == file; });
    io::NamedArrays& arrays =
        at == archives_.end() ? archives_.emplace_back(archive, io::NamedArrays{}).second : at->second;
    arrays.emplace_back(key, std::move(array));
  }
}

void Outputs::write(nlohmann::json* json) const {
  for (const auto& [path, array] : npy_) io::write_npy(path, array);
  for (const auto& [path, arrays] : archives_) io::write_arrays(path, arrays);
  for (const auto& [path, bytes] : raw_) {
    if (path == "-")
      print({reinterpret_cast<const char*>(bytes.data()), bytes.size()});
    else
      io::write_file(path, bytes);
  }
  for (const auto& [name, array] : printed_) {
    if (json != nullptr)
      (*json)[name] = array_json(array);
    else
      print(array_text(name, array));
  }
}

std::string array_text(const std::string& name, const HostArray& array) {
  std::string text = describe(name, array.dtype, array.shape) + " =";
  const auto n = static_cast<uint64_t>(array.shape.elements());
  const int rank = array.shape.rank();
  const uint64_t row = rank >= 2 && n != 0 ? static_cast<uint64_t>(array.shape[rank - 1]) : 0;
  for (uint64_t i = 0; i < n; ++i) {
    text += row != 0 && i % row == 0 ? "\n  " : " ";
    text += element_text(array.bytes, array.dtype, i);
  }
  return text + "\n";
}

nlohmann::json array_json(const HostArray& array) {
  nlohmann::json values = nlohmann::json::array();
  for (uint64_t i = 0; i < static_cast<uint64_t>(array.shape.elements()); ++i) {
    // JSON has no NaN and no infinity: they are strings.
    const double value = element_as_f64(array.bytes, array.dtype, i);
    if (array.dtype == DType::Bool)
      values.push_back(value != 0);
    else if (!is_float(array.dtype))
      values.push_back(element_as_i64(array.bytes, array.dtype, i));
    else if (std::isfinite(value))
      values.push_back(value);
    else
      values.push_back(element_text(array.bytes, array.dtype, i));
  }
  return {{"dtype", name_of(array.dtype)}, {"shape", array.shape.dims()}, {"values", std::move(values)}};
}

std::vector<std::pair<std::string, HostArray>> given_values(const Arguments& arguments, const Module& module,
                                                            int64_t seed) {
  std::vector<std::pair<std::string, HostArray>> values;
  for (const std::string& text : arguments.list("in")) {
    const auto [name, spec] = split_assignment(text, "--in");
    if (const TensorId id = module.find_tensor(name); id != kNone) {
      const Tensor& tensor = module.tensors[id];
      values.emplace_back(name, read_spec(spec, {name, tensor.dtype, tensor.shape, false, seed}));
      continue;
    }
    const size_t dot = name.rfind('.');
    const uint32_t stream = dot == std::string::npos ? kNone : module.find_stream(name.substr(0, dot));
    const Column* found = nullptr;
    if (stream != kNone)
      for (const Column& column : module.streams[stream].columns)
        if (column.name == name.substr(dot + 1)) found = &column;
    if (found == nullptr) usage_error(fmt::format("--in {}: nothing of that name takes data", name));
    values.emplace_back(name, read_spec(spec, {name, found->dtype, found->row, true, seed}));
  }
  return values;
}

}  // namespace tape::cli
