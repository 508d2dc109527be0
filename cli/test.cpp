// tape test: plays the .expect lines of texts on the CPU backends. A file that compares nothing is not a pass.
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "cli/source.h"
#include "embed/expect.h"
#include "vm/container.h"
#include "vm/io/files.h"

namespace tape::cli {
namespace {

struct Case {
  std::string file;
  std::string backend;  // empty: expected errors, no backend plays them
  size_t compared = 0;
  double seconds = 0;
  std::vector<std::string> failures;
};

std::vector<std::string> files_of(const std::vector<std::string>& paths) {
  std::vector<std::string> files;
  for (const std::string& path : paths) {
    std::error_code error;
    if (!std::filesystem::is_directory(path, error)) {
      files.push_back(path);
      continue;
    }
    std::vector<std::string> inside;
    for (const auto& entry : std::filesystem::recursive_directory_iterator(path))
      if (entry.is_regular_file() && entry.path().extension() == ".tape") inside.push_back(entry.path().string());
    std::sort(inside.begin(), inside.end());
    files.insert(files.end(), inside.begin(), inside.end());
  }
  return files;
}

void play_on(const std::string& backend, const std::string& text, Case& result) {
  Diagnostics diagnostics;
  const std::optional<Assembly> assembly = assemble(text, result.file, {}, diagnostics);
  if (!assembly) {
    result.failures.push_back(diagnostics.text());
    return;
  }
  if (assembly->expectations.empty()) return;
  ExpectOptions options;
  options.backend = backend;
  const ExpectReport report = check_expectations(*assembly, options);
  result.compared = report.compared;
  result.failures = report.failures;
  if (report.compared == 0 && report.failures.empty()) result.failures.push_back("no .expect line was compared");
}

Case run_case(const std::string& file, const std::string& backend, const std::string& text) {
  Case result{file, backend, 0, 0, {}};
  const auto start = std::chrono::steady_clock::now();
  try {
    if (backend.empty()) {
      const ExpectReport report = check_expected_errors(text, file);
      result.compared = report.compared;
      result.failures = report.failures;
    } else {
      play_on(backend, text, result);
    }
  } catch (const Error& error) {
    result.failures.push_back(error.what());
  }
  result.seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return result;
}

std::string xml(std::string_view text) {
  std::string out;
  for (const char c : text) {
    if (c == '&')
      out += "&amp;";
    else if (c == '<')
      out += "&lt;";
    else if (c == '>')
      out += "&gt;";
    else if (c == '"')
      out += "&quot;";
    else if (static_cast<unsigned char>(c) < 0x20 && c != '\n' && c != '\t')
      out += '?';
    else
      out += c;
  }
  return out;
}

std::string junit(const std::vector<Case>& cases, size_t failed) {
  std::string text = "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n";
  text += fmt::format("<testsuite name=\"tape\" tests=\"{}\" failures=\"{}\">\n", cases.size(), failed);
  for (const Case& item : cases) {
    text += fmt::format("  <testcase classname=\"{}\" name=\"{}\" time=\"{:.6f}\"",
                        xml(item.backend.empty() ? "errors" : item.backend), xml(item.file), item.seconds);
    if (item.failures.empty()) {
      text += "/>\n";
      continue;
    }
    text += ">\n";
    for (const std::string& failure : item.failures) text += fmt::format("    <failure>{}</failure>\n", xml(failure));
    text += "  </testcase>\n";
  }
  return text + "</testsuite>\n";
}

nlohmann::json to_json(const std::vector<Case>& cases) {
  nlohmann::json list = nlohmann::json::array();
  for (const Case& item : cases)
    list.push_back({{"file", item.file},
                    {"backend", item.backend},
                    {"compared", item.compared},
                    {"seconds", item.seconds},
                    {"failures", item.failures}});
  return list;
}

std::vector<std::string> backends_of(const Arguments& arguments) {
  const std::string given = arguments.text("backend", "cpu,cpu64");
  std::vector<std::string> backends;
  for (size_t at = 0; at <= given.size();) {
    const size_t end = std::min(given.find(',', at), given.size());
    backends.push_back(given.substr(at, end - at));
    static_cast<void>(open_backend(backends.back()));
    at = end + 1;
  }
  return backends;
}

}  // namespace

void test_options(po::options_description& options) {
  const auto text = [](const char* name) { return po::value<std::string>()->value_name(name); };
  options.add_options()("backend", text("NAME[,NAME]"), "backends to play on; default: cpu,cpu64")(
      "junit", text("FILE"), "write a JUnit report")("verbose,v", po::bool_switch(), "name what passes too");
}

int test_command(const Arguments& arguments) {
  want_positional(arguments, 1, ~size_t{0}, "at least one FILE or DIR");
  const std::vector<std::string> backends = backends_of(arguments);
  std::vector<Case> cases;
  size_t failed = 0, compared = 0, without = 0;
  for (const std::string& file : files_of(arguments.positional)) {
    const std::vector<std::byte> bytes = io::read_file(file);
    if (looks_like_container(bytes))
      throw Error(Code::Format, fmt::format("{}: is binary: .expect lines are those of a text", file));
    if (bytes.empty()) throw Error(Code::Format, fmt::format("{}: the file is empty", file));
    const std::string text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
    bool empty = true;
    for (const std::string& backend : expects_errors(text) ? std::vector<std::string>{""} : backends) {
      Case result = run_case(file, backend, text);
      if (result.compared == 0 && result.failures.empty()) continue;
      empty = false;
      compared += result.compared;
      failed += result.failures.empty() ? 0 : 1;
      const std::string on = backend.empty() ? "" : fmt::format(" [{}]", backend);
      if (!result.failures.empty() || arguments.flag("verbose"))
        std::fputs(fmt::format("{} {}{}\n", result.failures.empty() ? "ok  " : "FAIL", file, on).c_str(), stderr);
      for (const std::string& failure : result.failures) std::fputs(("  " + failure + "\n").c_str(), stderr);
      cases.push_back(std::move(result));
    }
    without += empty ? 1 : 0;
    if (empty && arguments.flag("verbose")) std::fputs(fmt::format("none {}\n", file).c_str(), stderr);
  }
  if (arguments.has("junit")) io::write_file(arguments.text("junit"), junit(cases, failed));
  if (arguments.json) {
    print(nlohmann::json{
              {"passed", cases.size() - failed}, {"failed", failed}, {"compared", compared}, {"cases", to_json(cases)}}
              .dump(2) +
          "\n");
  } else {
    print(fmt::format("{} passed, {} failed, {} lines compared{}\n", cases.size() - failed, failed, compared,
                      without == 0 ? "" : fmt::format(", {} files without .expect", without)));
  }
  if (failed != 0) return static_cast<int>(Code::Mismatch);
  if (compared != 0) return 0;
  std::fputs("tape test: error: nothing was compared: no file has an .expect line\n", stderr);
  return static_cast<int>(Code::NothingCompared);
}

}  // namespace tape::cli
