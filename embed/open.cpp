// See open.h. Data is read and checked at once: a host that holds a module does not depend on the file any more.
#include "embed/open.h"

#include <filesystem>
#include <utility>

#include "vm/container.h"
#include "vm/error.h"

namespace tape {
namespace {

std::optional<Module> parse(const std::string& path, const AssembleOptions& options, Diagnostics& diagnostics) {
  const FileBytes file = open_bytes(path, false);
  if (looks_like_container(file.bytes)) {
    if (!options.set.empty()) throw Error(Code::Usage, path + " is binary: only a text has constants to set");
    std::optional<Module> module = decode_module(file.bytes, file.keep, false, diagnostics);
    if (module) module->folder = std::filesystem::path(path).parent_path().string();
    return module;
  }
  const std::string_view text(reinterpret_cast<const char*>(file.bytes.data()), file.bytes.size());
  std::optional<Assembly> assembly = assemble(text, path, options, diagnostics);
  if (!assembly) return std::nullopt;
  return std::move(assembly->module);
}

}  // namespace

VerifiedModule open_module(const std::string& path, const AssembleOptions& options) {
  Diagnostics diagnostics;
  std::optional<Module> module = parse(path, options, diagnostics);
  if (!module) throw Error(Code::Format, path + " is no module:\n" + diagnostics.text());
  std::optional<VerifiedModule> verified = verify(*std::move(module), diagnostics);
  if (!verified) throw Error(Code::Invalid, path + " is not valid:\n" + diagnostics.text());
  return *std::move(verified);
}

}  // namespace tape
