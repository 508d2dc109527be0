// See case_player.h.
#include "difftest/case_player.h"

#include <fmt/format.h>

#include <algorithm>
#include <cstring>

#include "vm/command_buffer.h"
#include "vm/passes/passes.h"
#include "vm/plan.h"

namespace tape::difftest {
namespace {

constexpr uint64_t kGuard = 512, kUnit = 256;
constexpr unsigned char kGuardByte = 0xA5;

uint64_t rounded(uint64_t bytes) {
  return (bytes + kUnit - 1) / kUnit * kUnit;
}

class Recorder final : public HostChannel {
 public:
  void store(uint32_t sink, const Tensor& tensor, std::span<const std::byte> bytes) override {
    items.emplace_back(fmt::format("sink {} {}", sink, tensor.name),
                       std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  void trace(std::string_view label, const Tensor& tensor, std::span<const std::byte> bytes) override {
    items.emplace_back(fmt::format("trace {} {}", label, tensor.name),
                       std::vector<std::byte>(bytes.begin(), bytes.end()));
  }
  std::vector<std::pair<std::string, std::vector<std::byte>>> items;
};

struct Zone {
  uint64_t offset = 0, bytes = 0;
};

std::vector<bool> access_of(const OpCase& one, bool whole) {
  const Module& module = one.module->module();
  std::vector<bool> writes(module.tensors.size()), reads(module.tensors.size());
  for (const Tape& tape : module.tapes)
    for (const PlacedCommand& placed : commands_of(module, tape))
      for (size_t i = 0; i < placed.command.op->operands().size(); ++i) {
        if (!placed.command.is_tensor(i)) continue;
        for (const uint32_t id : placed.command.operand(i)) {
          if (id == kAbsent) continue;
          if (placed.command.access(i) != Access::Read) writes[id] = true;
          if (placed.command.access(i) != Access::Write) reads[id] = true;
        }
      }
  for (const Stream& stream : module.streams) reads[stream.cursor] = writes[stream.cursor] = true;
  for (size_t id = 0; id < writes.size(); ++id) writes[id] = writes[id] && (!whole || !reads[id]);
  return writes;
}

}  // namespace

struct CasePlayer::Layout {
  std::vector<Zone> tensors;
  std::vector<std::vector<Zone>> columns;
  Zone arena;
  std::vector<std::pair<std::string, Zone>> named;
  uint64_t end = kGuard;

  Zone take(std::string name, uint64_t bytes) {
    const Zone zone{end, bytes};
    end += rounded(std::max<uint64_t>(bytes, 1)) + kGuard;
    named.emplace_back(std::move(name), zone);
    return zone;
  }
};

CasePlayer::CasePlayer(std::unique_ptr<Backend> backend, unsigned char poison)
    : backend_(std::move(backend)), poison_(poison) {}
CasePlayer::~CasePlayer() = default;

std::vector<bool> CasePlayer::written_whole(const OpCase& one) {
  // In a loop what is written first may be read in the next pass.
  if (one.op->has(kControlEffect)) return std::vector<bool>(one.module->module().tensors.size());
  return access_of(one, true);
}

std::vector<bool> CasePlayer::written(const OpCase& one) {
  return access_of(one, false);
}

void CasePlayer::reserve(uint64_t bytes) {
  if (buffer_ && buffer_->bytes() >= bytes) return;
  buffer_.reset();
  buffer_ = backend_->allocate(std::max<uint64_t>(bytes, uint64_t{1} << 22));
}

CaseResult CasePlayer::play(const OpCase& one, const std::vector<HostArray>& values) {
  const Capabilities& capabilities = backend_->capabilities();
  Diagnostics diagnostics;
  const std::optional<VerifiedModule> entry = verify(inline_entry(*one.module, 0).module, diagnostics);
  if (!entry) throw Error(Code::Internal, diagnostics.text());
  const std::shared_ptr<const Plan> plan = make_plan(*entry, *backend_, {});
  const Module& module = one.module->module();

  Layout layout;
  for (const Tensor& tensor : module.tensors)
    layout.tensors.push_back(layout.take(
        tensor.name, static_cast<uint64_t>(tensor.shape.elements()) * size_of(capabilities.storage(tensor.dtype))));
  for (const std::vector<HostArray>& columns : one.columns) {
    layout.columns.emplace_back();
    for (const HostArray& column : columns)
      layout.columns.back().push_back(layout.take(
          "column", static_cast<uint64_t>(column.shape.elements()) * size_of(capabilities.storage(column.dtype))));
  }
  layout.arena = layout.take("arena", plan->arena_bytes);

  image_.assign(layout.end, std::byte{kGuardByte});
  guard_.assign(layout.end, std::byte{1});
  for (const auto& [name, zone] : layout.named)
    std::fill_n(guard_.begin() + static_cast<ptrdiff_t>(zone.offset), zone.bytes, std::byte{0});
  const auto fill = [&](const Zone& zone, const HostArray& array) {
    if (zone.bytes != 0)
      convert(array.bytes, array.dtype, std::span(image_).subspan(zone.offset, zone.bytes),
              capabilities.storage(array.dtype));
  };
  const std::vector<bool> whole = written_whole(one);
  const auto poison = [&](const Zone& zone) {
    std::fill_n(image_.begin() + static_cast<ptrdiff_t>(zone.offset), zone.bytes, std::byte{poison_});
  };
  for (size_t id = 0; id < module.tensors.size(); ++id) {
    if (whole[id])
      poison(layout.tensors[id]);
    else
      fill(layout.tensors[id], values[id]);
  }
  for (size_t s = 0; s < one.columns.size(); ++s)
    for (size_t c = 0; c < one.columns[s].size(); ++c) fill(layout.columns[s][c], one.columns[s][c]);
  poison(layout.arena);

  reserve(layout.end);
  backend_->upload(buffer_->address(), image_);
  Recorder recorder;
  Bindings bindings;
  bindings.arena = buffer_->address() + layout.arena.offset;
  bindings.host = &recorder;
  bindings.tensors.resize(entry->module().tensors.size());
  for (size_t id = 0; id < module.tensors.size(); ++id)
    bindings.tensors[id] = buffer_->address() + layout.tensors[id].offset;
  std::vector<StreamBinding> streams(one.columns.size());
  for (size_t s = 0; s < streams.size(); ++s) {
    streams[s].rows = one.rows;
    for (const Zone& zone : layout.columns[s]) streams[s].columns.push_back(buffer_->address() + zone.offset);
    streams[s].on_host.assign(streams[s].columns.size(), 0);
    bindings.streams.push_back(&streams[s]);
  }
  const std::unique_ptr<Executable> executable = backend_->prepare(plan, bindings);
  executable->run();
  backend_->synchronize();
  CaseResult result;
  if (const auto fault = executable->fault())
    result.fault = fmt::format("{}: {}", plan->commands[fault->command].command.op->mnemonic, fault->message);
  backend_->download(image_, buffer_->address());

  for (size_t i = 0; i < image_.size(); ++i)
    if (guard_[i] != std::byte{0} && image_[i] != std::byte{kGuardByte}) {
      const auto after = [&](const auto& each) { return each.second.offset + each.second.bytes <= i; };
      const auto last = std::find_if(layout.named.rbegin(), layout.named.rend(), after);
      result.overwritten =
          last == layout.named.rend()
              ? fmt::format("{} bytes before {}", kGuard - i, layout.named[0].first)
              : fmt::format("byte {} behind {}", i - last->second.offset - last->second.bytes, last->first);
      break;
    }
  for (size_t id = 0; id < module.tensors.size(); ++id) {
    const auto begin = image_.begin() + static_cast<ptrdiff_t>(layout.tensors[id].offset);
    result.tensors.push_back({capabilities.storage(module.tensors[id].dtype),
                              module.tensors[id].shape,
                              {begin, begin + static_cast<ptrdiff_t>(layout.tensors[id].bytes)}});
  }
  result.traffic = std::move(recorder.items);
  return result;
}

}  // namespace tape::difftest
