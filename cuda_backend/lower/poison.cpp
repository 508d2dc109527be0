// --poison: locals get 0xFF bytes where their life begins (before the loop, when it spans one), scratch before each
// command, by launches like any other.
#include "cuda_backend/kernels/elementwise.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {
namespace {

void fill(Address to, uint64_t bytes, DType dtype, LaunchList& list) {
  if (bytes == 0) return;
  View all;
  all.elements = static_cast<int64_t>(bytes / size_of(dtype));
  all.shape = {all.elements};
  all.strides = row_major_strides(all.shape);
  MoveArgs args{};
  args.dst = symbolic(to);
  args.value = ~uint64_t{0};
  const View* const views[] = {&all};
  args.nest = make_nest(views);
  list.add(fill_kernel(dtype), LaunchList::over(args.nest.elements), args, kMovePointers);
}

bool overlap(const tape_cuda_tensor& a, const tape_cuda_tensor& b) {
  return a.in_arena != 0 && b.in_arena != 0 && a.offset < b.offset + b.bytes && b.offset < a.offset + a.bytes;
}

}  // namespace

Poison::Poison(const tape_cuda_plan& plan) : plan_(plan), born_(plan.poison != 0 ? plan.commands_count : 0) {
  if (born_.empty()) return;
  for (uint32_t id = 0; id < plan.tensors_count; ++id)
    if (plan.tensors[id].in_arena != 0 && plan.tensors[id].bytes != 0) born_[plan.tensors[id].first].push_back(id);
}

void Poison::lower(const Call& call, uint64_t scratch_bytes, LaunchList& list) const {
  if (born_.empty()) return;
  Call fills = call;
  fills.guarded = false;
  list.begin(fills);
  const auto add = [&](Address to, uint64_t bytes) {
    fill(to, bytes / 8 * 8, DType::I64, list);
    fill(to + bytes / 8 * 8, bytes % 8, DType::U8, list);
  };
  // A local laid over an operand of the command that begins it shares bytes with a value still to be read.
  const auto shared = [&](const tape_cuda_tensor& place) {
    for (const View& view : call.operands) {
      if (!view.given()) continue;
      const tape_cuda_tensor& other = plan_.tensors[base_of(view.address) - kTensors];
      if (other.first < call.index && overlap(place, other)) return true;
    }
    return false;
  };
  for (const uint32_t id : born_[call.index])
    if (!shared(plan_.tensors[id])) add(make_address(kTensors + id, 0), plan_.tensors[id].bytes);
  add(make_address(kScratch, 0), scratch_bytes);
  list.begin(call);
}

}  // namespace tape::cuda
