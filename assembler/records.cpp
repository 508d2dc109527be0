// Records: the spellings of what a binary holds and a person would not write (docs/format.md, records). With them
// every module that decodes has a text that gives its bytes back.
#include <fmt/format.h>

#include "assembler/assembly.h"

namespace tape::text {

void Assembler::producer(Scan& scan, const Here&) {
  context_.module.producer = std::string(scan.string("the producer"));
  scan.expect_end("the producer");
}

/// .line_map "a.tape", "b.tape": the files of the line map; places come from .loc lines from here on.
void Assembler::line_map(Scan& scan, const Here&) {
  own_places();
  context_.module.files.clear();
  while (!scan.done()) {
    context_.module.files.emplace_back(scan.string("a file"));
    if (!scan.accept(',')) break;
  }
  scan.expect_end("the files");
}

/// From here on a place is what the text says; those of lines of the text, so far, are none.
void Assembler::own_places() {
  if (explicit_lines_) return;
  explicit_lines_ = context_.own_places = true;
  Module& module = context_.module;
  module.files.clear();
  module.chains.clear();
  for (Tensor& tensor : module.tensors) tensor.location = {};
  for (Stream& stream : module.streams) stream.location = {};
  for (Sink& sink : module.sinks) sink.location = {};
  for (Tape& tape : module.tapes) {
    tape.location = {};
    tape.lines.clear();
  }
}

/// LINE:COLUMN [file=N] [chain=N]
Location Assembler::read_location(Scan& scan) {
  scan.skip();
  const char* const begin = scan.position();
  const auto word = [&](std::string_view what) {
    scan.skip();
    const char* const start = scan.position();
    Value value;
    if (auto wrong = parse_literal(scan.number_token(), false, value)) throw Mistake{scan.since(start), *wrong, {}};
    if (value.is_float || value.i < 0 || value.i > 0xFFFFFFFFll)
      throw Mistake{scan.since(start), fmt::format("{} is a number of 32 bits", what), {}};
    return static_cast<uint32_t>(value.i);
  };
  Location location;
  location.line = word("a line");
  scan.expect(':', "between line and column");
  location.column = word("a column");
  while (scan.at_name()) {
    const Name key = scan.name();
    scan.expect('=', "after the key");
    if (key.text == "file")
      location.file = word("a file");
    else if (key.text == "chain")
      location.chain = word("a chain");
    else
      throw Mistake{key.text, fmt::format("a place has no {}=", key.text), {}};
  }
  const Module& module = context_.module;
  if (location.line != 0 && location.file >= module.files.size())
    throw Mistake{scan.since(begin),
                  fmt::format("file {} of the {} that .line_map names", location.file, module.files.size()),
                  {}};
  if (location.chain > module.chains.size())
    throw Mistake{scan.since(begin), fmt::format("chain {} of {} so far", location.chain, module.chains.size()), {}};
  return location;
}

void Assembler::chain_record(Scan& scan, const Here&) {
  ChainLink link;
  link.what = std::string(scan.string("how it was reached"));
  link.at = read_location(scan);
  scan.expect_end("the place");
  context_.module.chains.push_back(std::move(link));
}

void Assembler::loc(Scan& scan, const Here&) {
  own_places();
  loc_ = read_location(scan);
  scan.expect_end("the place");
}

void Assembler::metadata(Scan& scan, const Here&) {
  const std::string_view key = scan.string("a key");
  const std::string_view value = scan.string("a value");
  scan.expect_end("the value");
  context_.module.metadata.emplace_back(key, value);
}

void Assembler::section(Scan& scan, const Here&) {
  const uint32_t kind = raw_id(scan);
  const std::string_view hex = scan.string("bytes");
  Scan bytes(context_.sources.keep("\"" + std::string(hex) + "\""), context_.sources);
  context_.module.extra_sections.emplace_back(kind, hex_values(bytes, hex.size() / 2, "the section"));
  scan.expect_end("the bytes");
}

void Assembler::version(Scan& scan, const Here&) {
  const uint32_t major = raw_id(scan);
  const uint32_t minor = raw_id(scan);
  scan.expect_end("the version");
  context_.module.major = static_cast<uint16_t>(major);
  context_.module.minor = static_cast<uint16_t>(minor);
}

void Assembler::string_record(Scan& scan, const Here&) {
  context_.module.strings.emplace_back(scan.string("a string"));
  scan.expect_end("the string");
  raw_strings_ = true;
}

/// .order 2 0 1: ids of the tensors in the order the text declares them.
void Assembler::order_record(Scan& scan, const Here&) {
  while (!scan.done()) order_.push_back(static_cast<uint32_t>(integer(scan, context_, "an id")));
}

/// .word 0x00030340 1 2: words as they are.
void Assembler::words(Scan& scan, Body& body) {
  std::vector<uint32_t>& words = context_.module.tapes[context_.tape].words;
  const auto first = static_cast<uint32_t>(words.size());
  while (!scan.done()) {
    const char* const start = scan.position();
    const int64_t word = integer(scan, context_, "a word");
    if (word < 0 || word > 0xFFFFFFFFll) throw Mistake{scan.since(start), "a word has 32 bits", {}};
    words.push_back(static_cast<uint32_t>(word));
    scan.accept(',');
  }
  const auto last = static_cast<uint32_t>(words.size());
  if (loc_) context_.module.tapes[context_.tape].lines.push_back({first, *loc_});
  loc_.reset();
  if (!body.raw.empty() && body.raw.back().second == first)
    body.raw.back().second = last;
  else
    body.raw.emplace_back(first, last);
}

}  // namespace tape::text
