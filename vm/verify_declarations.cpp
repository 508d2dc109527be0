// Checks of everything a module declares: names of the one name space, tensors with their roles, links, initialisers
// and blobs, streams with their cursors, sinks, tapes and line maps.
#include <fmt/format.h>

#include <cmath>
#include <limits>
#include <string_view>
#include <unordered_map>

#include "vm/verify_internal.h"

namespace tape::verifier {
namespace {

// ---- names ----

bool is_letter(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_';
}

/// What is wrong with a name; empty when nothing is.
std::string name_fault(std::string_view name) {
  if (name.empty()) return "is empty";
  if (name.size() > static_cast<size_t>(limits::max_name))
    return fmt::format("has {} bytes; the limit max_name is {}", name.size(), limits::max_name);
  if (!is_letter(name[0])) return "does not begin with a letter or _";
  for (const char c : name)
    if (!is_letter(c) && !(c >= '0' && c <= '9') && c != '.')
      return "has a character other than letters, digits, _ and .";
  if (name == "inf" || name == "nan" || name == "min" || name == "max") return "is reserved";
  return {};
}

/// A name for messages: clipped, and without bytes that are no name characters.
std::string quoted(std::string_view name) {
  std::string text = "'";
  for (const char c : name.substr(0, 60)) text += c >= ' ' && c <= '~' ? c : '?';
  return text + (name.size() > 60 ? "...'" : "'");
}

class Names {
 public:
  explicit Names(Report& report) : report_(report) {}

  /// `scope`: the tape a name is private to, kNone for the module's.
  void declare(std::string_view name, std::string_view noun, TapeId scope, const Location& location) {
    if (const std::string fault = name_fault(name); !fault.empty()) {
      report_.declaration(location, fmt::format("the name {} of a {} {}", quoted(name), noun, fault));
      return;
    }
    const auto [at, fresh] = scopes_.try_emplace({name, scope}, Declared{noun, location});
    const auto common = scope == kNone ? scopes_.end() : scopes_.find({name, kNone});
    if (common != scopes_.end())
      report_.declaration(
          location,
          fmt::format("{} is private to a tape, but the module has a {} of that name", name, common->second.noun),
          common->second.location, "declared here");
    if (fresh) return;
    report_.declaration(location, fmt::format("{} is declared twice: as {} and as {}", name, at->second.noun, noun),
                        at->second.location, "first declared here");
  }

 private:
  struct Key {
    std::string_view name;
    TapeId scope;
    bool operator==(const Key&) const = default;
  };
  struct Hash {
    size_t operator()(const Key& key) const { return std::hash<std::string_view>{}(key.name) * 31 + key.scope; }
  };
  struct Declared {
    std::string_view noun;
    Location location;
  };
  Report& report_;
  std::unordered_map<Key, Declared, Hash> scopes_;
};

void check_names(const Module& module, Report& report) {
  Names names(report);
  for (const Tensor& tensor : module.tensors)
    if (tensor.owner == kNone) names.declare(tensor.name, "tensor", kNone, tensor.location);
  for (const Tape& tape : module.tapes) names.declare(tape.name, "tape", kNone, tape.location);
  for (const Stream& stream : module.streams) names.declare(stream.name, "stream", kNone, stream.location);
  for (const Sink& sink : module.sinks) names.declare(sink.name, "sink", kNone, sink.location);
  for (const Tensor& tensor : module.tensors)
    if (tensor.owner != kNone) names.declare(tensor.name, "tensor", tensor.owner, tensor.location);
}

// ---- tensors ----

bool is_role(Role role) {
  return static_cast<uint8_t>(role) <= static_cast<uint8_t>(Role::Rng);
}

/// Roles whose tensors belong to the module, never to one tape.
bool is_common_role(const Tensor& tensor) {
  return is_persistent(tensor);
}

bool may_be_initialised(Role role) {
  switch (role) {
    case Role::Input:
    case Role::Param:
    case Role::State:
    case Role::Data:
      return true;
    case Role::Output:
    case Role::Local:
    case Role::Saved:
    case Role::Grad:
    case Role::Extern:
    case Role::Rng:
      return false;
  }
  return false;
}

class TensorCheck {
 public:
  TensorCheck(const Module& module, Report& report) : module_(module), report_(report) {
    for (TensorId id = 0; id < module.tensors.size(); ++id)
      if (module.tensors[id].owner == kNone) common_.emplace(module.tensors[id].name, id);
  }

  void run() {
    for (const Tensor& tensor : module_.tensors) {
      current_ = &tensor;
      flags();
      link();
      content();
      if (tensor.role == Role::Rng) generator();
      gradient_name();
    }
  }

 private:
  template <class... Args>
  void mistake(fmt::format_string<Args...> format, Args&&... args) {
    report_.declaration(current_->location,
                        fmt::format("{}: {}", current_->name, fmt::format(format, std::forward<Args>(args)...)));
  }

  void flags() {
    const Tensor& t = *current_;
    if (t.writable && t.role != Role::Extern) mistake("only an extern is declared write, not {}", with_article(t.role));
    if (t.persistent_grad && t.role != Role::Grad) mistake("{} cannot be a persistent gradient", with_article(t.role));
    if (t.owner == kNone) return;
    if (t.owner >= module_.tapes.size())
      mistake("is private to tape {}, but the module has {} tapes", t.owner, module_.tapes.size());
    else if (is_common_role(t))
      mistake("{} cannot be private to a tape", with_article(t.role));
  }

  void link() {
    const Tensor& t = *current_;
    if (t.link == kNone) {
      if (t.role == Role::Grad) mistake("a gradient needs a link to its primal");
      return;
    }
    if (t.link >= module_.tensors.size() || &module_.tensors[t.link] == current_) {
      mistake("its link is no other tensor of the module");
      return;
    }
    const Tensor& target = module_.tensors[t.link];
    if (t.role == Role::Grad) return gradient(target);
    if (t.role == Role::State) return optimizer_state(target);
    if (t.role != Role::Extern) mistake("{} has no link", with_article(t.role));
  }

  void gradient(const Tensor& primal) {
    const Tensor& t = *current_;
    if (!is_float(primal.dtype))
      mistake("is the gradient of {}, which is {}", primal.name, name_of(primal.dtype));
    else if (t.dtype != primal.dtype && t.dtype != DType::F32)
      mistake("is {}, wants {} or f32, as its primal {}", name_of(t.dtype), name_of(primal.dtype), primal.name);
    if (t.shape != primal.shape)
      mistake("has shape {}, its primal {} has {}", t.shape.text(), primal.name, primal.shape.text());
    if (t.persistent_grad && (t.name.size() != primal.name.size() + 5 || t.name != primal.name + "_grad"))
      mistake("the gradient of {} is named {}_grad", primal.name, primal.name);
  }

  void optimizer_state(const Tensor& param) {
    const Tensor& t = *current_;
    if (param.role != Role::Param && param.role != Role::Extern) {
      mistake("optimizer state belongs to a param, not to the {} {}", name_of(param.role), param.name);
      return;
    }
    const DType wanted = param.dtype == DType::F64 ? DType::F64 : DType::F32;
    if (t.dtype != wanted)
      mistake("is {}, wants {}: optimizer state of {} {}", name_of(t.dtype), name_of(wanted), param.name,
              name_of(param.dtype));
    if (t.shape != param.shape)
      mistake("has shape {}, its parameter {} has {}", t.shape.text(), param.name, param.shape.text());
  }

  /// `<name>_grad` of a tensor belongs to gradients and externs.
  void gradient_name() {
    const Tensor& t = *current_;
    if (t.owner != kNone || t.role == Role::Grad || t.role == Role::Extern || t.role == Role::Saved) return;
    if (t.name.size() <= 5 || !t.name.ends_with("_grad")) return;
    const auto primal = common_.find(std::string_view(t.name).substr(0, t.name.size() - 5));
    if (primal != common_.end() && is_float(module_.tensors[primal->second].dtype))
      mistake("is the name of the gradient of {}, which only .extern may declare", primal->first);
  }

  void content() {
    const Tensor& t = *current_;
    const bool has_init = t.init.kind != InitKind::None;
    if (t.blob != kNone) blob();
    if (has_init && t.blob != kNone) mistake("has an initialiser and data");
    if (t.role == Role::Data && !has_init && t.blob == kNone) mistake("a data tensor needs data or an initialiser");
    if (has_init && t.role != Role::Rng) {
      if (!may_be_initialised(t.role)) mistake("{} has no initialiser", with_article(t.role));
      initialiser();
    }
  }

  void blob() {
    const Tensor& t = *current_;
    if (!may_be_initialised(t.role)) mistake("{} has no data", with_article(t.role));
    if (t.blob >= module_.blobs.size()) {
      mistake("has data {}, but the module has {} blobs", t.blob, module_.blobs.size());
    } else if (module_.blobs[t.blob].bytes.size() != byte_size(t)) {
      mistake("{}{} takes {} bytes, its data has {}", name_of(t.dtype), t.shape.text(), byte_size(t),
              module_.blobs[t.blob].bytes.size());
    }
  }

  void generator() {
    const Tensor& t = *current_;
    if (t.dtype != DType::I64 || t.shape != Shape{2})
      mistake("is {}{}, a generator is i64[2]", name_of(t.dtype), t.shape.text());
    if (t.init.kind != InitKind::Seed) mistake("a generator needs seed=");
  }

  void wants_float(std::string_view init) {
    if (!is_float(current_->dtype)) mistake("{} needs a float dtype, not {}", init, name_of(current_->dtype));
  }
  void wants_rank(std::string_view init, int rank) {
    if (current_->shape.rank() < rank) mistake("{} needs rank {} or more, not {}", init, rank, current_->shape.text());
  }
  void wants_finite(std::string_view init, std::string_view name, double value) {
    if (!std::isfinite(value)) mistake("{} {}={} is not finite", init, name, value);
  }

  /// A fill value that is no float must be an integer the dtype holds.
  void fill() {
    const Tensor& t = *current_;
    const double value = t.init.a;
    double low = 0, high = 0;  // half open
    switch (t.dtype) {
      case DType::F64:
      case DType::F32:
      case DType::F16:
      case DType::BF16:
        return;
      case DType::I64:
        low = -0x1p63, high = 0x1p63;
        break;
      case DType::I32:
        low = -0x1p31, high = 0x1p31;
        break;
      case DType::I16:
        low = -0x1p15, high = 0x1p15;
        break;
      case DType::I8:
        low = -0x1p7, high = 0x1p7;
        break;
      case DType::U8:
        low = 0, high = 256;
        break;
      case DType::Bool:
        low = 0, high = 2;
        break;
    }
    if (!(value >= low && value < high) || value != std::floor(value))
      mistake("fill value={} does not fit {}", value, name_of(t.dtype));
  }

  void fan(std::string_view init) {
    wants_float(init);
    wants_rank(init, 2);
  }

  void initialiser() {
    const Init& init = current_->init;
    switch (init.kind) {
      case InitKind::None:
      case InitKind::Zeros:
      case InitKind::Ones:
        return;
      case InitKind::Fill:
        return fill();
      case InitKind::Uniform:
        wants_float("uniform");
        wants_finite("uniform", "lo", init.a);
        wants_finite("uniform", "hi", init.b);
        if (init.a > init.b) mistake("uniform lo={} exceeds hi={}", init.a, init.b);
        return;
      case InitKind::Normal:
        wants_float("normal");
        wants_finite("normal", "mean", init.a);
        wants_finite("normal", "std", init.b);
        if (init.b < 0) mistake("normal std={} is negative", init.b);
        return;
      case InitKind::KaimingUniform:
        return fan("kaiming_uniform");
      case InitKind::KaimingNormal:
        return fan("kaiming_normal");
      case InitKind::XavierUniform:
        return fan("xavier_uniform");
      case InitKind::XavierNormal:
        return fan("xavier_normal");
      case InitKind::Orthogonal:
        fan("orthogonal");
        wants_finite("orthogonal", "gain", init.a);
        return;
      case InitKind::Iota:
        if (current_->dtype == DType::Bool) mistake("iota needs numbers, not bool");
        return;
      case InitKind::Eye:
        if (current_->shape.rank() != 2) mistake("eye needs rank 2, not {}", current_->shape.text());
        return;
      case InitKind::Seed:
        mistake("seed= alone initialises only an .rng");
        return;
    }
  }

  const Module& module_;
  Report& report_;
  const Tensor* current_ = nullptr;
  std::unordered_map<std::string_view, TensorId> common_;
};

/// Dtype, shape, role and initialiser codes are such, and sizes can be computed with.
bool check_types(const Module& module, Report& report) {
  bool sound = true;
  int64_t bytes = 0;
  const auto bad = [&](const Location& location, std::string message) {
    report.declaration(location, std::move(message));
    sound = false;
  };
  const auto type = [&](const Location& location, std::string_view name, DType dtype, const Shape& shape) -> int64_t {
    if (find_dtype(static_cast<uint32_t>(dtype)) == nullptr) {
      bad(location, fmt::format("{}: {} is the code of no dtype", quoted(name), static_cast<uint32_t>(dtype)));
      return 0;
    }
    const auto elements = shape.checked_elements();
    if (elements) return *elements * static_cast<int64_t>(size_of(dtype));
    for (const int64_t dim : shape.dims())
      if (dim < 0) {
        bad(location, fmt::format("{}: shape {} has a negative dimension", quoted(name), shape.text()));
        return 0;
      }
    bad(location,
        fmt::format("{}: shape {} exceeds max_elements, {}", quoted(name), shape.text(), limits::max_elements));
    return 0;
  };
  for (const Tensor& tensor : module.tensors) {
    const int64_t size = type(tensor.location, tensor.name, tensor.dtype, tensor.shape);
    bytes = std::min(bytes, limits::max_bytes) + size;
    if (!is_role(tensor.role))
      bad(tensor.location,
          fmt::format("{}: {} is the code of no role", quoted(tensor.name), static_cast<uint32_t>(tensor.role)));
    if (static_cast<uint8_t>(tensor.init.kind) > static_cast<uint8_t>(InitKind::Seed))
      bad(tensor.location, fmt::format("{}: {} is the code of no initialiser", quoted(tensor.name),
                                       static_cast<uint32_t>(tensor.init.kind)));
  }
  if (bytes > limits::max_bytes)
    bad({}, fmt::format("the tensors take more than {} bytes (max_bytes)", limits::max_bytes));
  for (const Stream& stream : module.streams)
    for (const Column& column : stream.columns) type(stream.location, column.name, column.dtype, column.row);
  for (const Sink& sink : module.sinks) type(sink.location, sink.name, sink.dtype, sink.row);
  return sound;
}

// ---- streams, sinks, tapes ----

void check_row(const Location& location, std::string_view name, const Shape& row, Report& report) {
  if (row.rank() >= limits::max_rank)
    report.declaration(location, fmt::format("{}: rows of rank {} leave no axis for * (max_rank is {})", name,
                                             row.rank(), limits::max_rank));
}

/// A default binding stays under the folder of the module.
bool leaves_folder(std::string_view path) {
  if (path.starts_with('/') || path.find('\\') != path.npos || path.find('\0') != path.npos) return true;
  while (!path.empty()) {
    const size_t slash = std::min(path.find('/'), path.size());
    if (path.substr(0, slash) == "..") return true;
    path.remove_prefix(std::min(slash + 1, path.size()));
  }
  return false;
}

void check_columns(const Stream& stream, Report& report) {
  const auto mistake = [&](std::string message) {
    report.declaration(stream.location, fmt::format("stream {}: {}", stream.name, message));
  };
  if (stream.columns.empty()) mistake("has no column");
  if (stream.columns.size() > static_cast<size_t>(limits::max_columns))
    mistake(fmt::format("has {} columns; the limit max_columns is {}", stream.columns.size(), limits::max_columns));
  std::unordered_map<std::string_view, int> seen;
  for (const Column& column : stream.columns) {
    if (const std::string fault = name_fault(column.name); !fault.empty())
      mistake(fmt::format("the column name {} {}", quoted(column.name), fault));
    if (++seen[column.name] == 2) mistake(fmt::format("has two columns {}", column.name));
    check_row(stream.location, stream.name + '.' + column.name, column.row, report);
    if (leaves_folder(column.path))
      mistake(
          fmt::format("the path {} of column {} leaves the folder of the module", quoted(column.path), column.name));
  }
}

void check_streams(const Module& module, Report& report) {
  for (const Stream& stream : module.streams) {
    check_columns(stream, report);
    if (stream.cursor >= module.tensors.size()) {
      report.declaration(stream.location, fmt::format("stream {}: has no cursor tensor", stream.name));
      continue;
    }
    const Tensor& cursor = module.tensors[stream.cursor];
    if (cursor.role != Role::State || cursor.dtype != DType::I64 || cursor.shape != Shape{2} || cursor.owner != kNone)
      report.declaration(stream.location,
                         fmt::format("stream {}: the cursor {} is {} {}{}, wants state i64[2]", stream.name,
                                     cursor.name, name_of(cursor.role), name_of(cursor.dtype), cursor.shape.text()));
    if (cursor.name != stream.name + ".cursor")
      report.declaration(stream.location, fmt::format("stream {}: the cursor is named {}, wants {}.cursor", stream.name,
                                                      cursor.name, stream.name));
  }
  for (const Sink& sink : module.sinks) check_row(sink.location, sink.name, sink.row, report);
}

void check_tapes(const Module& module, Report& report) {
  for (TapeId id = 0; id < module.tapes.size(); ++id) {
    const Tape& tape = module.tapes[id];
    if (tape.gradient_of != kNone && (tape.gradient_of >= module.tapes.size() || tape.gradient_of == id))
      report.declaration(tape.location, fmt::format("{}: is the gradient of no other tape of the module", tape.name));
    if (tape.words.size() > std::numeric_limits<uint32_t>::max())
      report.declaration(tape.location, fmt::format("{}: has more words than 32 bits count", tape.name));
  }
}

void check_counts(const Module& module, Report& report) {
  const auto limit = [&](std::string_view what, size_t count, std::string_view name, int64_t most) {
    if (static_cast<int64_t>(count) > most)
      report.module(fmt::format("the module has {} {}; the limit {} is {}", count, what, name, most));
  };
  limit("tensors", module.tensors.size(), "max_tensors", limits::max_tensors);
  limit("tapes", module.tapes.size(), "max_tapes", limits::max_tapes);
  limit("streams", module.streams.size(), "max_streams", limits::max_streams);
  limit("sinks", module.sinks.size(), "max_streams", limits::max_streams);
}

// ---- line maps ----

/// Links refer to earlier links, so that every walk along a chain ends, and soon.
void check_chains(const Module& module, Report& report) {
  std::vector<uint32_t> depth(module.chains.size());
  for (size_t i = 0; i < module.chains.size(); ++i) {
    const uint32_t before = module.chains[i].at.chain;
    if (before > i)
      return report.module(
          fmt::format("line map: chain {} goes on with chain {}, which is not before it", i + 1, before));
    depth[i] = before == 0 ? 1 : depth[before - 1] + 1;
    if (depth[i] > limits::max_chain)
      return report.module(
          fmt::format("line map: chain {} has more than {} links (max_chain)", i + 1, limits::max_chain));
    if (module.chains[i].at.line != 0 && module.chains[i].at.file >= module.files.size())
      return report.module(
          fmt::format("line map: chain {} is in file {} of {}", i + 1, module.chains[i].at.file, module.files.size()));
  }
}

void check_lines(const Module& module, Report& report) {
  const auto bad = [&](const Location& at) {
    return at.line != 0 && (at.file >= module.files.size() || at.chain > module.chains.size());
  };
  for (const Tape& tape : module.tapes) {
    for (size_t i = 0; i < tape.lines.size(); ++i) {
      const LineEntry& entry = tape.lines[i];
      if (!bad(entry.location) && entry.word < tape.words.size() && (i == 0 || tape.lines[i - 1].word < entry.word))
        continue;
      report.module(fmt::format("tape {}: entry {} of its line map is out of order or names no word, file or chain",
                                quoted(tape.name), i));
      break;
    }
  }
  const auto check = [&](const Location& at, std::string_view name) {
    if (bad(at)) report.module(fmt::format("the place of {} names no file or chain", quoted(name)));
  };
  for (const Tensor& tensor : module.tensors) check(tensor.location, tensor.name);
  for (const Tape& tape : module.tapes) check(tape.location, tape.name);
  for (const Stream& stream : module.streams) check(stream.location, stream.name);
  for (const Sink& sink : module.sinks) check(sink.location, sink.name);
}

}  // namespace

bool check_declarations(const Module& module, Report& report) {
  check_counts(module, report);
  check_chains(module, report);
  check_lines(module, report);
  if (!check_types(module, report)) return false;
  check_names(module, report);
  TensorCheck(module, report).run();
  check_streams(module, report);
  check_tapes(module, report);
  for (const Tensor& tensor : module.tensors)
    if (tensor.owner != kNone && tensor.owner >= module.tapes.size()) return false;
  return true;
}

}  // namespace tape::verifier
