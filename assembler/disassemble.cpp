// Module -> text that assembles to the same bytes. Every command is read back before it is believed; what does not give
// its own words again, because the module was never verified, is printed as `.word`.
#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "assembler/assembler.h"
#include "assembler/canonical.h"
#include "assembler/command_parser.h"
#include "assembler/initialisers.h"
#include "assembler/preprocess.h"
#include "assembler/print.h"
#include "opcodes/limits.h"
#include "vm/command_buffer.h"

namespace tape {
namespace text {
namespace {

/// A printed command as lines to be read back.
class PrintedLines final : public LineFeed {
 public:
  explicit PrintedLines(std::string_view text) : lines_(split_lines(text, 0)) {}
  [[nodiscard]] bool next(Here& here) override {
    if (at_ == lines_.size()) return false;
    here = {&lines_[at_++], 0};
    return true;
  }
  void report(const Here&, const Mistake&) override {}

 private:
  std::vector<Line> lines_;
  size_t at_ = 0;
};

class Disassembler {
 public:
  Disassembler(const Module& module, const DisassembleOptions& options)
      : module_(module), options_(options), parser_(context_) {
    context_.module.tensors = module.tensors;
    context_.module.streams = module.streams;
    context_.module.sinks = module.sinks;
    context_.module.strings = module.strings;
    name_everything();
  }

  Disassembly run() {
    const std::vector<std::string> bodies = tape_bodies();
    header();
    commons();
    for (TapeId tape = 0; tape < module_.tapes.size(); ++tape) {
      loc(module_.tapes[tape].location, "");
      const TapeId of = module_.tapes[tape].gradient_of;
      text_ += fmt::format(".tape {}{}\n", spelled(module_.tapes[tape].name),
                           of < module_.tapes.size() ? " gradient_of=" + spelled(module_.tapes[of].name) : "");
      privates(tape);
      text_ += bodies[tape];
      text_ += ".end\n";
    }
    return {std::move(text_), std::move(sidecar_)};
  }

 private:
  /// Tensors by owner, each in the order of their ids; [0] the common ones.
  void name_everything() {
    owned_.resize(module_.tapes.size() + 1);
    for (TensorId id = 0; id < module_.tensors.size(); ++id) {
      const uint32_t owner = module_.tensors[id].owner;
      owned_[owner < module_.tapes.size() ? owner + 1 : 0].push_back(id);
    }
    const auto set = [&](NameTable& table, std::string_view name, SymbolKind kind, size_t id) {
      table.set(Name::of(name), {kind, static_cast<uint32_t>(id), {}});
    };
    for (size_t i = 0; i < module_.tapes.size(); ++i) set(context_.globals, module_.tapes[i].name, SymbolKind::Tape, i);
    for (size_t i = 0; i < module_.streams.size(); ++i)
      set(context_.globals, module_.streams[i].name, SymbolKind::Stream, i);
    for (size_t i = 0; i < module_.sinks.size(); ++i) set(context_.globals, module_.sinks[i].name, SymbolKind::Sink, i);
    for (const TensorId id : owned_[0]) set(context_.globals, module_.tensors[id].name, SymbolKind::Tensor, id);
  }

  void loc(const Location& at, std::string_view indent) {
    if (options_.plain || at == Location{}) return;
    text_ += fmt::format("{}.loc {}\n", indent, place_text(at));
  }

  static std::string place_text(const Location& at) {
    std::string text = fmt::format("{}:{}", at.line, at.column);
    if (at.file != 0) text += fmt::format(" file={}", at.file);
    if (at.chain != 0) text += fmt::format(" chain={}", at.chain);
    return text;
  }

  static std::string hex(std::span<const std::byte> bytes) {
    constexpr char kDigits[] = "0123456789abcdef";
    std::string text = "\"";
    for (const std::byte b : bytes) {
      text += kDigits[std::to_integer<unsigned>(b) >> 4];
      text += kDigits[std::to_integer<unsigned>(b) & 15];
    }
    return text + '"';
  }

  void header() {
    text_ += fmt::format(".module {}\n", spelled(module_.name));
    if (module_.producer != "tapedeck") text_ += fmt::format(".producer {}\n", quoted(module_.producer));
    if (const Module fresh; module_.major != fresh.major || module_.minor != fresh.minor)
      text_ += fmt::format(".version %{} %{}\n", module_.major, module_.minor);
    if (!options_.plain) {
      text_ += ".line_map";
      for (size_t i = 0; i < module_.files.size(); ++i)
        text_ += fmt::format("{} {}", i == 0 ? "" : ",", quoted(module_.files[i]));
      text_ += '\n';
      for (const ChainLink& link : module_.chains)
        text_ += fmt::format(".chain {} {}\n", quoted(link.what), place_text(link.at));
    }
    for (const auto& [key, value] : module_.metadata) text_ += fmt::format(".meta {} {}\n", quoted(key), quoted(value));
    for (const auto& [kind, bytes] : module_.extra_sections)
      text_ += fmt::format(".section %{} {}\n", kind, hex(bytes));
    if (strings_in_words_)
      for (const std::string& string : module_.strings) text_ += fmt::format(".string {}\n", quoted(string));
    const std::vector<uint32_t> ids = canonical_ids(module_);
    if (std::is_sorted(ids.begin(), ids.end())) return;
    std::vector<uint32_t> order(ids.size());
    for (uint32_t id = 0; id < ids.size(); ++id) order[ids[id]] = id;
    text_ += fmt::format(".order {}\n", fmt::join(order, " "));
  }

  /// Common tensors in order; a stream stands where its cursor does when that is the one its line would declare.
  void commons() {
    const std::vector<TensorId>& ids = owned_[0];
    size_t next = 0;
    for (size_t s = 0; s < module_.streams.size(); ++s) {
      const Stream& stream = module_.streams[s];
      const auto at = declares_cursor(stream)
                          ? std::find(ids.begin() + static_cast<ptrdiff_t>(next), ids.end(), stream.cursor)
                          : ids.end();
      const bool natural = at != ids.end();
      for (; natural && ids[next] != stream.cursor; ++next) tensor(ids[next], "");
      print_stream(stream, natural);
      if (natural) declared_[ids[next++]] = true;
    }
    for (; next < ids.size(); ++next) tensor(ids[next], "");
    for (const Sink& sink : module_.sinks) {
      loc(sink.location, "");
      text_ += fmt::format(".sink {} {}\n", spelled(sink.name), type_text(sink.dtype, sink.row, true));
    }
  }

  [[nodiscard]] bool declares_cursor(const Stream& stream) const {
    if (stream.cursor >= module_.tensors.size() || stream.columns.empty()) return false;
    Tensor cursor;
    cursor.name = stream.name + ".cursor";
    cursor.dtype = DType::I64;
    cursor.shape = Shape{2};
    cursor.role = Role::State;
    cursor.init.kind = InitKind::Zeros;
    cursor.location = options_.plain ? module_.tensors[stream.cursor].location : stream.location;
    return module_.tensors[stream.cursor] == cursor;
  }

  void print_stream(const Stream& stream, bool natural) {
    loc(stream.location, "");
    text_ += fmt::format(".stream {}", spelled(stream.name));
    for (size_t i = 0; i < stream.columns.size(); ++i) {
      const Column& column = stream.columns[i];
      text_ +=
          fmt::format("{} {} {}", i == 0 ? "" : ",", spelled(column.name), type_text(column.dtype, column.row, true));
      if (!column.path.empty())
        text_ += fmt::format(" = @{}{}", is_inner_path(column.path) ? "" : "raw ", quoted(column.path));
    }
    if (!natural) text_ += fmt::format(" cursor=%{}", stream.cursor);
    text_ += '\n';
  }

  void privates(TapeId tape) {
    for (const TensorId id : owned_[tape + 1]) tensor(id, "  ");
  }

  void tensor(TensorId id, std::string_view indent) {
    const Tensor& record = module_.tensors[id];
    loc(record.location, indent);
    const bool plain_word = has_directive(record);
    text_ += fmt::format("{}.{}{} {}", indent, plain_word ? "" : "role ", name_of(record.role), spelled(record.name));
    if (record.role == Role::Rng && plain_word) {
      if (record.init.seed != 0) text_ += fmt::format(" seed={}", record.init.seed);
    } else {
      text_ += ' ' + type_text(record.dtype, record.shape);
      initial(record.init);
    }
    if (record.writable) text_ += " write";
    if (record.persistent_grad) text_ += " persistent";
    if (record.link != kNone) {
      const bool named =
          record.link < module_.tensors.size() && declared_[record.link] &&
          (module_.tensors[record.link].owner == kNone || module_.tensors[record.link].owner == record.owner);
      text_ += named ? " link=" + spelled(module_.tensors[record.link].name) : fmt::format(" link=%{}", record.link);
    }
    if (record.blob < module_.blobs.size()) data(record, module_.blobs[record.blob].bytes);
    text_ += '\n';
    declared_[id] = true;
  }

  /// Whether the record is one that its own directive declares; else `.role` spells it.
  [[nodiscard]] bool has_directive(const Tensor& record) const {
    const bool value = record.blob != kNone, initial = record.init.kind != InitKind::None;
    const bool common = record.owner == kNone;
    const bool gradient_name = record.name.ends_with("_grad");
    if (gradient_name && common && record.role != Role::Extern) return false;
    if (value && initial) return false;
    switch (record.role) {
      case Role::Input:
      case Role::Param:
      case Role::State:
        return common && !initialiser_problem(record);
      case Role::Data:
        return common && (value || initial) && !initialiser_problem(record);
      case Role::Output:
      case Role::Extern:
        return common && !value && !initial;
      case Role::Local:
      case Role::Saved:
        return !value && !initial;
      case Role::Rng:
        return common && record.dtype == DType::I64 && record.shape == Shape{2} && record.init.kind == InitKind::Seed &&
               record.link == kNone && !value;
      case Role::Grad:
        return false;
    }
    return false;
  }

  void initial(const Init& init) {
    const Initialiser* const row = find_initialiser(init.kind);
    if (row == nullptr) return;
    text_ += fmt::format(" {}", row->name);
    const auto same = [](double a, double b) { return std::bit_cast<uint64_t>(a) == std::bit_cast<uint64_t>(b); };
    if (!row->first.empty() && (!same(init.a, row->a) || init.kind == InitKind::Fill))
      text_ += fmt::format(" {}={}", row->first, number_text(init.a));
    if (!row->second.empty() && !same(init.b, row->b)) text_ += fmt::format(" {}={}", row->second, number_text(init.b));
    if (row->random && init.seed != 0) text_ += fmt::format(" seed={}", init.seed);
  }

  void data(const Tensor& record, std::span<const std::byte> bytes) {
    text_ += " =";
    if (static_cast<int64_t>(bytes.size()) > limits::max_inline_blob) {
      if (options_.sidecar.empty()) {
        text_ += " bytes " + hex(bytes);
        return;
      }
      text_ += fmt::format(" @{}:{}", quoted(options_.sidecar), sidecar_.size());
      sidecar_.insert(sidecar_.end(), bytes.begin(), bytes.end());
      return;
    }
    const size_t before = text_.size();
    const size_t size = size_of(record.dtype);
    std::vector<std::byte> again;
    for (uint64_t i = 0; i * size < bytes.size(); ++i) {
      const std::string element = element_text(bytes, record.dtype, i);
      const bool negative = element.starts_with('-');
      const std::string_view token = std::string_view(element).substr(negative ? 1 : 0);
      Value value;
      again.clear();
      const bool reads =
          !parse_literal(token, negative, value) && !append_element(again, record.dtype, value, token, negative);
      if (!reads || std::memcmp(again.data(), bytes.data() + i * size, size) != 0) {
        text_.resize(before);  // a NaN with a payload, a bool that is neither 0 nor 1
        text_ += " bytes " + hex(bytes);
        return;
      }
      text_ += ' ' + element;
    }
  }

  std::vector<std::string> tape_bodies() {
    std::vector<std::string> bodies;
    bodies.resize(module_.tapes.size());
    for (const TapeId tape : body_order(module_)) bodies[tape] = body(tape);
    return bodies;
  }

  std::string body(TapeId id) {
    const Tape& tape = module_.tapes[id];
    context_.tape = kNone;  // nothing is to be declared here
    context_.privates.clear();
    for (const TensorId owned : owned_[id + 1]) {
      if (module_.tensors[owned].role == Role::Saved)  // its gradient can read it from here on
        context_.globals.set(Name::of(context_.sources.keep(tape.name + ':' + module_.tensors[owned].name)),
                             {SymbolKind::Tensor, owned, {}});
      context_.privates.set(Name::of(module_.tensors[owned].name), {SymbolKind::Tensor, owned, {}});
    }
    std::string text;
    std::string indent = "  ";
    size_t line = 0;
    Decoder decoder(tape.words, module_);
    while (!decoder.done()) {
      const Decoded decoded = decoder.next();
      const auto words = std::span(tape.words).subspan(decoded.word, decoded.count);
      std::string printed;
      const bool reads = decoded.command && reads_back(*decoded.command, id, words, printed);
      const bool ends = reads && decoded.command->op->shape == ShapeRule::None &&
                        decoded.command->op->has(kControlEffect) && decoded.command->op->operands().empty();
      if (ends && indent.size() > 2) indent.resize(indent.size() - 2);
      for (; line < tape.lines.size() && tape.lines[line].word <= decoded.word; ++line)
        if (!options_.plain) text += fmt::format("{}.loc {}\n", indent, place_text(tape.lines[line].location));
      if (reads) {
        for (const Line& printed_line : split_lines(printed, 0)) text += indent + std::string(printed_line.text) + '\n';
        if (decoded.command->op->shape == ShapeRule::Loop && indent.size() < 80) indent += "  ";
        continue;
      }
      if (decoded.command)
        for (const Attribute& attribute : decoded.command->op->attributes())
          strings_in_words_ = strings_in_words_ || attribute.type == AttrType::String;
      text += indent + ".word";
      for (const uint32_t word : words) text += fmt::format(" {:#x}", word);
      text += decoded.reason.empty() ? "\n" : fmt::format("  ; {}\n", printable(decoded.reason));
    }
    return text;
  }

  static std::string printable(std::string text) {
    for (char& c : text)
      if (c < ' ' || c > '~') c = '?';
    return text;
  }

  /// Whether the printed command, read as the assembler reads it, encodes to the same words.
  bool reads_back(const Command& command, TapeId tape, std::span<const uint32_t> words, std::string& printed) {
    // A saved value is known to the gradient of its tape; another body may stand before its line.
    for (size_t i = 0; i < command.op->operands().size(); ++i)
      if (command.is_tensor(i))
        for (const uint32_t id : command.operand(i)) {
          if (id == kAbsent || module_.tensors[id].role != Role::Saved) continue;
          const TapeId owner = module_.tensors[id].owner;
          if (owner != tape && owner != kNone && module_.tapes[tape].gradient_of != owner) return false;
        }
    append_command(printed, command, module_, tape);
    PrintedLines lines(printed);
    Here here;
    if (!lines.next(here)) return false;
    Scan scan(here.line->text, context_.sources);
    std::vector<uint32_t> again;
    std::string reason;
    try {
      if (!encode(parser_.parse(scan, here, &lines), context_.module, again, reason)) return false;
    } catch (const Mistake&) {
      return false;
    }
    return std::equal(again.begin(), again.end(), words.begin(), words.end());
  }

  const Module& module_;
  DisassembleOptions options_;
  Context context_;
  CommandParser parser_;
  std::vector<std::vector<TensorId>> owned_;
  std::vector<bool> declared_ = std::vector<bool>(module_.tensors.size());
  bool strings_in_words_ = false;
  std::string text_;
  std::vector<std::byte> sidecar_;
};

}  // namespace
}  // namespace text

Disassembly disassemble(const Module& module, const DisassembleOptions& options) {
  return text::Disassembler(module, options).run();
}

Module strip(Module module) {
  for (Tensor& tensor : module.tensors) tensor.location = {};
  for (Stream& stream : module.streams) stream.location = {};
  for (Sink& sink : module.sinks) sink.location = {};
  for (Tape& tape : module.tapes) {
    tape.location = {};
    tape.lines.clear();
  }
  module.chains.clear();
  module.files.clear();
  return module;
}

}  // namespace tape
