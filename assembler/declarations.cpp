// Declarations: tensors of every role by one table, streams and sinks. A declaration that fails poisons its name, so
// that nothing that uses it is reported again.
#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cmath>
#include <filesystem>

#include "assembler/assembly.h"
#include "opcodes/limits.h"

namespace tape::text {

struct Assembler::DeclarationKind {
  std::string_view directive;
  Role role;
  bool initialised;  // may have an initial value
  bool raw;          // .role: names its role, any record can be written
};

std::span<const Assembler::DeclarationKind> Assembler::declaration_kinds() {
  static constexpr DeclarationKind kKinds[] = {
      {".input", Role::Input, true, false},  {".param", Role::Param, true, false},
      {".state", Role::State, true, false},  {".output", Role::Output, false, false},
      {".data", Role::Data, true, false},    {".local", Role::Local, false, false},
      {".saved", Role::Saved, false, false}, {".extern", Role::Extern, false, false},
      {".rng", Role::Rng, false, false},     {".role", Role::Local, true, true},
  };
  return kKinds;
}

const Assembler::DeclarationKind* Assembler::find_declaration(std::string_view directive) {
  for (const DeclarationKind& kind : declaration_kinds())
    if (kind.directive == directive) return &kind;
  return nullptr;
}

namespace {

constexpr Role kRoles[] = {Role::Input, Role::Param, Role::State, Role::Output, Role::Data,
                           Role::Local, Role::Saved, Role::Grad,  Role::Extern, Role::Rng};

/// Initialisers: the arguments they take and what those are when not given.
struct Initialiser {
  std::string_view name;
  InitKind kind;
  std::string_view first, second;  // names of Init::a and Init::b
  double a, b;
  bool random;
  int rank;  // at least; eye: exactly
};
constexpr Initialiser kInitialisers[] = {
    {"zeros", InitKind::Zeros, "", "", 0, 0, false, 0},
    {"ones", InitKind::Ones, "", "", 0, 0, false, 0},
    {"fill", InitKind::Fill, "value", "", 0, 0, false, 0},
    {"uniform", InitKind::Uniform, "lo", "hi", 0, 1, true, 0},
    {"normal", InitKind::Normal, "mean", "std", 0, 1, true, 0},
    {"kaiming_uniform", InitKind::KaimingUniform, "", "", 0, 0, true, 2},
    {"kaiming_normal", InitKind::KaimingNormal, "", "", 0, 0, true, 2},
    {"xavier_uniform", InitKind::XavierUniform, "", "", 0, 0, true, 2},
    {"xavier_normal", InitKind::XavierNormal, "", "", 0, 0, true, 2},
    {"orthogonal", InitKind::Orthogonal, "gain", "", 1, 0, true, 2},
    {"iota", InitKind::Iota, "", "", 0, 0, false, 0},
    {"eye", InitKind::Eye, "", "", 0, 0, false, 2},
};

const Initialiser* find_initialiser(std::string_view name) {
  for (const Initialiser& initialiser : kInitialisers)
    if (initialiser.name == name) return &initialiser;
  return nullptr;
}

bool ends_in_grad(std::string_view name) {
  return name.size() > 5 && name.substr(name.size() - 5) == "_grad";
}

}  // namespace

uint32_t Assembler::raw_id(Scan& scan) {
  scan.expect('%', "before a raw id");
  scan.skip();
  const char* const start = scan.position();
  const std::string_view token = scan.number_token();
  Value value;
  if (auto wrong = parse_literal(token, false, value)) throw Mistake{scan.since(start), *wrong, {}};
  if (value.is_float || value.i < 0 || value.i > 0xFFFFFFFFll) throw Mistake{token, "an id is a number of 32 bits", {}};
  return static_cast<uint32_t>(value.i);
}

uint32_t Assembler::tensor_reference(Scan& scan) {
  if (scan.peek() == '%') return raw_id(scan);
  const Name name = scan.want_name("a tensor");
  const Symbol* const symbol = context_.find(name);
  if (symbol != nullptr && symbol->kind == SymbolKind::Tensor) return symbol->index;
  throw wrong_name(context_, name, "a tensor", "", [](SymbolKind kind) { return kind == SymbolKind::Tensor; });
}

void Assembler::declare(Scan& scan, const Here& here, const DeclarationKind& kind) {
  Declared declared;
  declared.raw = kind.raw;
  declared.tensor.role = kind.role;
  declared.tensor.owner = context_.tape;
  declared.tensor.location = place(here, scan.here());
  if (kind.raw) {
    const Name role = scan.want_name("a role");
    std::vector<std::string_view> names;
    const Role* found = nullptr;
    for (const Role& known : kRoles) {
      names.push_back(name_of(known));
      if (names.back() == role.text) found = &known;
    }
    if (found == nullptr)
      throw Mistake{role.text, fmt::format("no role is named {}{}", role.text, did_you_mean(role.text, names)), {}};
    declared.tensor.role = *found;
  }
  const Name name = scan.want_name("a name");
  try {
    declared.tensor.name = std::string(name.text);
    if (!kind.raw) check_free(name);
    if (!kind.raw && kind.role != Role::Extern && context_.tape == kNone && ends_in_grad(name.text))
      throw Mistake{
          name.text, fmt::format("{} would be a gradient's name: only .grad and .extern declare those", name.text), {}};
    read_declaration(scan, here, kind, declared);
  } catch (const Mistake&) {
    poison(name, here);
    throw;
  }
  if (declared.has_bytes) declared.tensor.blob = add_blob(std::move(declared.bytes));
  const auto id = static_cast<uint32_t>(context_.module.tensors.size());
  NameTable& table = context_.tape == kNone ? context_.globals : context_.privates;
  if (!kind.raw || table.find(name) == nullptr)
    table.set(name, {SymbolKind::Tensor, id, Reporter::location(here, name.text)});
  context_.module.tensors.push_back(std::move(declared.tensor));
}

void Assembler::read_declaration(Scan& scan, const Here& here, const DeclarationKind& kind, Declared& declared) {
  Tensor& tensor = declared.tensor;
  if (tensor.role == Role::Rng && !kind.raw) {
    tensor.dtype = DType::I64;
    tensor.shape = Shape{2};
    tensor.init.kind = InitKind::Seed;
    while (!scan.done()) {
      const Name key = scan.want_name("seed=");
      if (key.text != "seed") throw Mistake{key.text, fmt::format("an .rng has no {}=; it takes seed=", key.text), {}};
      scan.expect('=', "after seed");
      tensor.init.seed = integer(scan, context_, "seed=");
    }
    return;
  }
  scan.skip();
  const char* const start = scan.position();
  tensor.dtype = dtype_of(scan);
  tensor.shape = shape_of(scan, context_, false, !kind.raw);
  declared.type_token = scan.since(start);
  read_options(scan, here, kind, declared);
  if (!kind.raw && tensor.role == Role::Data && !declared.has_bytes && tensor.blob == kNone &&
      tensor.init.kind == InitKind::None)
    throw Mistake{
        {}, fmt::format("the constant {} has no value: add = and its elements, or an initialiser", tensor.name), {}};
}

void Assembler::read_options(Scan& scan, const Here& here, const DeclarationKind& kind, Declared& declared) {
  while (!scan.done()) {
    if (scan.peek() == '=') {
      if (!kind.initialised) scan.fail(fmt::format("{} {} has no initial value", kind.directive, declared.tensor.name));
      if (declared.has_bytes || declared.tensor.init.kind != InitKind::None) scan.fail("a second initial value");
      scan.accept('=');
      declared.bytes = values(scan, here, declared.tensor.dtype, declared.tensor.shape, declared.tensor.name);
      declared.has_bytes = true;
      continue;
    }
    const Name key = scan.want_name("an initialiser or =");
    read_option(scan, kind, declared, key);
  }
}

void Assembler::read_option(Scan& scan, const DeclarationKind& kind, Declared& declared, const Name& key) {
  Tensor& tensor = declared.tensor;
  if (key.text == "write" && tensor.role == Role::Extern) {
    tensor.writable = true;
  } else if (key.text == "link" && scan.accept('=')) {
    if (scan.peek() == '%') raw_links_.push_back(static_cast<TensorId>(context_.module.tensors.size()));
    tensor.link = tensor_reference(scan);
  } else if (key.text == "blob" && scan.accept('=')) {
    tensor.blob = raw_id(scan);
  } else if (kind.raw && key.text == "write") {
    tensor.writable = true;
  } else if (kind.raw && key.text == "persistent") {
    tensor.persistent_grad = true;
  } else if (kind.raw && key.text == "owner" && scan.accept('=')) {
    tensor.owner = raw_id(scan);
  } else if (kind.raw && key.text == "init" && scan.accept('=')) {
    read_record(scan, declared);
  } else if (kind.initialised) {
    if (declared.has_bytes || tensor.init.kind != InitKind::None) throw Mistake{key.text, "a second initial value", {}};
    read_initialiser(scan, key, declared);
  } else if (find_initialiser(key.text) != nullptr) {
    throw Mistake{key.text, fmt::format("{} {} has no initial value", kind.directive, tensor.name), {}};
  } else {
    throw Mistake{key.text, fmt::format("unexpected {}", key.text), {}};
  }
}

/// init=[kind, bits of a, bits of b, seed]: an initialiser that no spelling gives back.
void Assembler::read_record(Scan& scan, Declared& declared) {
  Init& init = declared.tensor.init;
  scan.expect('[', "before the record");
  const int64_t kind = integer(scan, context_, "the kind");
  if (kind < 0 || kind > 255) scan.fail("an initialiser's kind is 0 to 255");
  init.kind = static_cast<InitKind>(kind);
  scan.expect(',', "between numbers");
  init.a = std::bit_cast<double>(integer(scan, context_, "bits"));
  scan.expect(',', "between numbers");
  init.b = std::bit_cast<double>(integer(scan, context_, "bits"));
  scan.expect(',', "between numbers");
  init.seed = integer(scan, context_, "the seed");
  scan.expect(']', "after the record");
}

void Assembler::read_initialiser(Scan& scan, const Name& word, Declared& declared) {
  const Initialiser* const row = find_initialiser(word.text);
  if (row == nullptr) {
    std::vector<std::string_view> all;
    for (const Initialiser& known : kInitialisers) all.push_back(known.name);
    throw Mistake{word.text, fmt::format("no initialiser is named {}{}", word.text, did_you_mean(word.text, all)), {}};
  }
  Init init;
  init.kind = row->kind;
  init.a = row->a;
  init.b = row->b;
  bool first = false, second = false, seed = false;
  while (scan.at_name()) {
    const char* const start = scan.position();
    const Name key = scan.name();
    if (!scan.accept('=')) {
      scan.rewind(start);
      break;
    }
    const bool is_first = !row->first.empty() && key.text == row->first;
    const bool is_second = !row->second.empty() && key.text == row->second;
    const bool is_seed = row->random && key.text == "seed";
    bool& given = is_first ? first : is_second ? second : seed;
    if (is_first || is_second || is_seed) {
      if (given) throw Mistake{key.text, fmt::format("{}= is given twice", key.text), {}};
      given = true;
    }
    if (is_first || is_second) {
      (is_first ? init.a : init.b) = number(scan, context_);
    } else if (is_seed) {
      init.seed = integer(scan, context_, "seed=");
    } else {
      scan.rewind(start);
      break;
    }
  }
  if (row->kind == InitKind::Fill && !first) throw Mistake{word.text, "fill wants value=", {}};
  declared.tensor.init = init;
  check_initialiser(declared, word.text);
}

void Assembler::check_initialiser(const Declared& declared, std::string_view token) const {
  if (declared.raw) return;
  const Tensor& tensor = declared.tensor;
  const Initialiser& row = *find_initialiser(token);
  const auto fail = [&](std::string message) { throw Mistake{token, fmt::format("{}: {}", token, message), {}}; };
  if (row.random && !is_float(tensor.dtype))
    fail(fmt::format("wants a float tensor, {} is {}", tensor.name, name_of(tensor.dtype)));
  const int rank = tensor.shape.rank();
  if (rank < row.rank || (row.kind == InitKind::Eye && rank != 2))
    fail(fmt::format("wants rank {}{}, {} is {}", row.rank, row.kind == InitKind::Eye ? "" : " or more", tensor.name,
                     tensor.shape.text()));
  if (row.kind == InitKind::Uniform && !(tensor.init.a <= tensor.init.b))
    fail(fmt::format("lo={} exceeds hi={}", tensor.init.a, tensor.init.b));
  if (row.kind == InitKind::Normal && !(tensor.init.b >= 0)) fail(fmt::format("std={} is negative", tensor.init.b));
  if (row.kind != InitKind::Fill) return;
  const double fill = tensor.init.a;
  const bool integral = std::abs(fill) < 9007199254740993.0 && fill == std::trunc(fill);
  const Value value = !is_float(tensor.dtype) && integral ? Value::of(static_cast<int64_t>(fill)) : Value::of(fill);
  if (auto wrong = check_fits(tensor.dtype, value)) fail(*wrong);
}

uint32_t Assembler::add_blob(std::vector<std::byte> bytes) {
  const auto owned = std::make_shared<const std::vector<std::byte>>(std::move(bytes));
  Blob blob;
  blob.keep = owned;
  blob.bytes = *owned;
  blob.hash = XXH3_64bits(owned->data(), owned->size());
  context_.module.blobs.push_back(std::move(blob));
  return static_cast<uint32_t>(context_.module.blobs.size() - 1);
}

Column Assembler::read_column(Scan& scan, const Here& here) {
  Column column;
  column.name = std::string(scan.want_name("a column").text);
  column.dtype = dtype_of(scan);
  column.row = shape_of(scan, context_, true);
  if (!scan.accept('=')) return column;
  scan.skip();
  const char* const start = scan.position();
  scan.expect('@', "before the file of a column");
  const std::string_view path = scan.string("a file");
  const std::string& folder = context_.sources.file(here.line->file).folder;
  const std::string full = checked_path(path, folder, options_.include_root, scan.since(start));
  const std::string& base = context_.module.folder;
  column.path = base.empty() ? full : std::filesystem::path(full).lexically_relative(base).generic_string();
  if (column.path.empty()) column.path = std::string(path);
  return column;
}

void Assembler::declare_stream(Scan& scan, const Here& here) {
  const Location location = place(here, scan.here());
  const Name name = scan.want_name("a stream's name");
  Stream stream;
  bool raw = false;
  try {
    stream.name = std::string(name.text);
    stream.location = location;
    while (scan.at_name() || scan.peek() == '"') {
      if (scan.accept("cursor=")) {  // a record: no cursor is declared, names may be taken
        raw = true;
        stream.cursor = raw_id(scan);
        raw_cursors_.push_back(static_cast<uint32_t>(context_.module.streams.size()));
        break;
      }
      const char* const start = scan.position();
      Column column = read_column(scan, here);
      for (const Column& other : stream.columns)
        if (other.name == column.name)
          throw Mistake{scan.since(start).substr(0, column.name.size()),
                        fmt::format("the stream {} has two columns {}", name.text, column.name),
                        {}};
      stream.columns.push_back(std::move(column));
      if (!scan.accept(',') && scan.peek() != 'c') break;
    }
    scan.expect_end("the columns");
    if (!raw) check_free(name);
    if (!raw && stream.columns.empty()) scan.fail(fmt::format("the stream {} has no column", name.text));
    if (static_cast<int64_t>(stream.columns.size()) > limits::max_columns)
      throw Mistake{name.text, fmt::format("more than {} columns (max_columns)", limits::max_columns), {}};
  } catch (const Mistake&) {
    poison(name, here);
    throw;
  }
  if (!raw) {
    Tensor cursor;
    cursor.name = stream.name + ".cursor";
    cursor.dtype = DType::I64;
    cursor.shape = Shape{2};
    cursor.role = Role::State;
    cursor.init.kind = InitKind::Zeros;
    cursor.location = location;
    const Name cursor_name = Name::of(context_.sources.keep(cursor.name));
    check_free(cursor_name);
    stream.cursor = static_cast<TensorId>(context_.module.tensors.size());
    context_.globals.set(cursor_name, {SymbolKind::Tensor, stream.cursor, Reporter::location(here, name.text)});
    context_.module.tensors.push_back(std::move(cursor));
  }
  if (!raw || context_.globals.find(name) == nullptr)
    context_.globals.set(name, {SymbolKind::Stream, static_cast<uint32_t>(context_.module.streams.size()),
                                Reporter::location(here, name.text)});
  context_.module.streams.push_back(std::move(stream));
}

void Assembler::declare_sink(Scan& scan, const Here& here) {
  const Location location = place(here, scan.here());
  const Name name = scan.want_name("a sink's name");
  Sink sink;
  bool duplicate = false;
  try {
    sink.name = std::string(name.text);
    sink.location = location;
    sink.dtype = dtype_of(scan);
    sink.row = shape_of(scan, context_, true);
    duplicate = scan.accept("duplicate");
    scan.expect_end("the sink");
    if (!duplicate) check_free(name);
  } catch (const Mistake&) {
    poison(name, here);
    throw;
  }
  if (!duplicate || context_.globals.find(name) == nullptr)
    context_.globals.set(name, {SymbolKind::Sink, static_cast<uint32_t>(context_.module.sinks.size()),
                                Reporter::location(here, name.text)});
  context_.module.sinks.push_back(std::move(sink));
}

}  // namespace tape::text
