// Declarations: tensors of every role by one table, streams and sinks. A declaration that fails poisons its name, so
// that nothing that uses it is reported again.
#include <fmt/format.h>
#include <xxhash.h>

#include <bit>
#include <cmath>
#include <filesystem>

#include "assembler/assembly.h"
#include "assembler/initialisers.h"
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
    check_free(name);
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
  table.set(name, {SymbolKind::Tensor, id, Reporter::location(here, name.text)});
  if (declared.tensor.role == Role::Saved && context_.tape != kNone) {  // gradients read it as `tape:name`
    const std::string& tape = context_.module.tapes[context_.tape].name;
    context_.globals.set(Name::of(context_.sources.keep(tape + ':' + declared.tensor.name)),
                         {SymbolKind::Tensor, id, Reporter::location(here, name.text)});
  }
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
  tensor.shape = shape_of(scan, context_, false);
  declared.type_token = scan.since(start);
  read_options(scan, here, kind, declared);
  if (!kind.raw && tensor.role == Role::Data && !declared.has_bytes && tensor.init.kind == InitKind::None)
    throw Mistake{
        {}, fmt::format("the constant {} has no value: add = and its elements, or an initialiser", tensor.name), {}};
}

void Assembler::read_options(Scan& scan, const Here& here, const DeclarationKind& kind, Declared& declared) {
  while (!scan.done()) {
    if (scan.peek() == '=') {
      if (!kind.initialised) scan.fail(fmt::format("{} {} has no initial value", kind.directive, declared.tensor.name));
      if (declared.has_bytes || (!kind.raw && declared.tensor.init.kind != InitKind::None))
        scan.fail("a second initial value");
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
  if (key.text == "write" && (kind.raw || tensor.role == Role::Extern)) {
    tensor.writable = true;
  } else if (key.text == "link" && scan.accept('=')) {
    if (scan.peek() == '%') raw_links_.push_back(static_cast<TensorId>(context_.module.tensors.size()));
    tensor.link = tensor_reference(scan);
  } else if (kind.raw && key.text == "persistent") {
    tensor.persistent_grad = true;
  } else if (kind.initialised) {
    if (declared.has_bytes || tensor.init.kind != InitKind::None) throw Mistake{key.text, "a second initial value", {}};
    read_initialiser(scan, key, declared);
  } else if (find_initialiser(key.text) != nullptr) {
    throw Mistake{key.text, fmt::format("{} {} has no initial value", kind.directive, tensor.name), {}};
  } else {
    throw Mistake{key.text, fmt::format("unexpected {}", key.text), {}};
  }
}

void Assembler::read_initialiser(Scan& scan, const Name& word, Declared& declared) {
  const Initialiser* const row = find_initialiser(word.text);
  if (row == nullptr) {
    std::vector<std::string_view> all;
    for (const Initialiser& known : initialisers()) all.push_back(known.name);
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
    } else if (key.text != "link") {
      std::string takes;
      for (const std::string_view option : {row->first, row->second, std::string_view(row->random ? "seed" : "")})
        if (!option.empty()) takes += fmt::format("{}{}=", takes.empty() ? "; it takes " : " ", option);
      throw Mistake{key.text, fmt::format("{} takes no {}={}", row->name, key.text, takes), {}};
    } else {
      scan.rewind(start);
      break;
    }
  }
  if (row->kind == InitKind::Fill && !first) throw Mistake{word.text, "fill wants value=", {}};
  declared.tensor.init = init;
  if (declared.raw) return;
  if (auto problem = initialiser_problem(declared.tensor)) throw Mistake{word.text, *problem, {}};
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
  if (scan.accept("raw")) {  // a record: the path as it is, for the player to refuse
    column.path = std::string(scan.string("a file"));
    return column;
  }
  const std::string_view path = scan.string("a file");
  if (!is_inner_path(path)) throw Mistake{scan.since(start), fmt::format("the path {} leaves its folder", path), {}};
  const std::string& folder = context_.sources.file(here.line->file).folder;
  column.path = std::string(path);
  if (folder != context_.module.folder)  // an included file's: relative to the module's from here on
    column.path = (std::filesystem::path(folder) / path).lexically_relative(context_.module.folder).generic_string();
  return column;
}

/// Columns, and for a record `cursor=%id`: then no cursor is declared. True when it is one.
bool Assembler::read_columns(Scan& scan, const Here& here, Stream& stream) {
  bool record = false;
  while (!record && (scan.at_name() || scan.peek() == '"')) {
    record = scan.accept("cursor=");
    if (record) {
      stream.cursor = raw_id(scan);
      raw_cursors_.push_back(static_cast<uint32_t>(context_.module.streams.size()));
      break;
    }
    const char* const start = scan.position();
    Column column = read_column(scan, here);
    for (const Column& other : stream.columns)
      if (other.name == column.name)
        throw Mistake{scan.since(start).substr(0, column.name.size()),
                      fmt::format("the stream {} has two columns {}", stream.name, column.name),
                      {}};
    stream.columns.push_back(std::move(column));
    if (!scan.accept(',') && scan.peek() != 'c') break;
  }
  scan.expect_end("the columns");
  if (!record && stream.columns.empty()) scan.fail(fmt::format("the stream {} has no column", stream.name));
  return record;
}

void Assembler::declare_stream(Scan& scan, const Here& here) {
  Stream stream;
  stream.location = place(here, scan.here());
  const Name name = scan.want_name("a stream's name");
  stream.name = std::string(name.text);
  try {
    const bool record = read_columns(scan, here, stream);
    check_free(name);
    if (static_cast<int64_t>(stream.columns.size()) > limits::max_columns)
      throw Mistake{name.text, fmt::format("more than {} columns (max_columns)", limits::max_columns), {}};
    if (!record) declare_cursor(name, here, stream);
  } catch (const Mistake&) {
    poison(name, here);
    throw;
  }
  context_.globals.set(name, {SymbolKind::Stream, static_cast<uint32_t>(context_.module.streams.size()),
                              Reporter::location(here, name.text)});
  context_.module.streams.push_back(std::move(stream));
}

void Assembler::declare_cursor(const Name& stream_name, const Here& here, Stream& stream) {
  Tensor cursor;
  cursor.name = stream.name + ".cursor";
  cursor.dtype = DType::I64;
  cursor.shape = Shape{2};
  cursor.role = Role::State;
  cursor.init.kind = InitKind::Zeros;
  cursor.location = stream.location;
  const Name name = Name::of(context_.sources.keep(cursor.name));
  try {
    check_free(name);
  } catch (Mistake& mistake) {
    mistake.token = stream_name.text;  // the cursor's own name stands nowhere in the line
    throw;
  }
  stream.cursor = static_cast<TensorId>(context_.module.tensors.size());
  context_.globals.set(name, {SymbolKind::Tensor, stream.cursor, Reporter::location(here, stream_name.text)});
  context_.module.tensors.push_back(std::move(cursor));
}

void Assembler::declare_sink(Scan& scan, const Here& here) {
  const Location location = place(here, scan.here());
  const Name name = scan.want_name("a sink's name");
  Sink sink;
  try {
    sink.name = std::string(name.text);
    sink.location = location;
    sink.dtype = dtype_of(scan);
    sink.row = shape_of(scan, context_, true);
    scan.expect_end("the sink");
    check_free(name);
  } catch (const Mistake&) {
    poison(name, here);
    throw;
  }
  context_.globals.set(name, {SymbolKind::Sink, static_cast<uint32_t>(context_.module.sinks.size()),
                              Reporter::location(here, name.text)});
  context_.module.sinks.push_back(std::move(sink));
}

}  // namespace tape::text
