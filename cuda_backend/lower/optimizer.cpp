// Optimizers, CLIP_VALUE and CLIP_NORM, whose scale the tensors read from scratch: commands over lists, in launches of
// up to kListed tensors of one dtype.
#include "cuda_backend/kernels/optimizer.h"

#include <map>

#include "cuda_backend/launch.h"

namespace tape::cuda {
namespace {

std::vector<const char*> attributes_of(Opcode op) {
  switch (op) {
    case Opcode::Sgd:
    case Opcode::Nag:
      return {"momentum", "weight_decay"};
    case Opcode::Adam:
    case Opcode::AdamW:
    case Opcode::AmsGrad:
      return {"beta1", "beta2", "eps", "weight_decay"};
    case Opcode::AdaGrad:
      return {"eps", "lr_decay", "weight_decay"};
    case Opcode::RmsProp:
      return {"alpha", "eps", "momentum", "weight_decay"};
    case Opcode::Lion:
      return {"beta1", "beta2", "weight_decay"};
    default:
      return {};
  }
}

/// Launches of a kernel over the members of a list: put(args, slot, i) names tensor i in a slot of a launch.
template <class Args, class Put>
void list_launches(const void* kernel, Args args, unsigned pointers, std::span<const size_t> members, uint32_t chunk,
                   std::span<const View> sizes, LaunchList& list, const Put& put) {
  Args now = args;
  uint64_t blocks = 0;
  const auto flush = [&] {
    if (now.of.tensors == 0) return;
    LaunchList::Shape shape;
    shape.x = blocks;
    list.add(kernel, shape, now, pointers);
    now = args;
    blocks = 0;
  };
  now.of.chunk = args.of.chunk = chunk;
  constexpr uint64_t kMaxBlocks = (uint64_t{1} << 31) - 1;
  for (const size_t i : members) {
    const auto elements = static_cast<uint64_t>(sizes[i].elements);
    if (elements == 0) continue;
    const uint64_t own = (elements + chunk - 1) / chunk;
    if (now.of.tensors == kListed || blocks + own > kMaxBlocks) flush();
    now.of.elements[now.of.tensors] = elements;
    now.of.first_block[now.of.tensors] = static_cast<uint32_t>(blocks);
    put(now, now.of.tensors, i);
    ++now.of.tensors;
    blocks += own;
  }
  flush();
}

/// Elements of a block, whose round has `round` of them: several rounds where there are many.
uint32_t chunk_for(std::span<const View> views, uint32_t round) {
  uint64_t elements = 0;
  for (const View& view : views) elements += static_cast<uint64_t>(view.elements);
  return static_cast<uint32_t>(std::clamp<uint64_t>(elements / (round * 132 * 8), 1, 8'192 / round)) * round;
}

void update(const Call& call, LaunchList& list) {
  const size_t rest = call.command.ends.size() - 4;  // the operand lr
  const auto params = call.list(0), grads = call.list(1), lows = call.list(rest + 3);
  const auto at = [&](size_t operand, size_t i) -> void* {
    const auto views = call.list(operand);
    return views.empty() ? nullptr : views[i].pointer();
  };
  struct Kind {
    DType param, low;
    bool wide_grad;
    auto operator<=>(const Kind&) const = default;
  };
  std::map<Kind, std::vector<size_t>> groups;
  for (size_t i = 0; i < params.size(); ++i)
    groups[{params[i].dtype, lows.empty() || !lows[i].given() ? DType{} : lows[i].dtype,
            is_half(params[i].dtype) && grads[i].dtype == DType::F32}]
        .push_back(i);
  for (const auto& [kind, members] : groups) {
    OptimizerArgs args{};
    args.lr = call.operand(rest).pointer();
    args.step = call.operand(rest + 1).pointer<const int64_t>();
    const std::vector<const char*> names = attributes_of(call.opcode());
    for (size_t k = 0; k < names.size(); ++k)
      args.constant[k] = round_to_compute(call.command.attr_float(names[k]), kind.param);
    args.lr_dtype = static_cast<uint32_t>(call.operand(rest).dtype);
    args.low_dtype = static_cast<uint32_t>(kind.low);
    args.wide_grad = kind.wide_grad ? 1 : 0;
    args.nesterov = call.opcode() == Opcode::Sgd && call.command.attr_bool("nesterov") ? 1 : 0;
    list_launches(optimizer_kernel(call.opcode(), kind.param), args, kOptimizerPointers, members,
                  chunk_for(params, 1'024), params, list, [&](OptimizerArgs& to, uint32_t slot, size_t i) {
                    OptimizerArgs::Tensor& tensor = to.tensor[slot];
                    tensor.param = params[i].pointer();
                    tensor.grad = grads[i].pointer();
                    for (size_t k = 0; k + 2 < rest; ++k) tensor.state[k] = at(2 + k, i);
                    tensor.master = at(rest + 2, i);
                    tensor.low = at(rest + 3, i);
                  });
  }
}

std::map<DType, std::vector<size_t>> by_dtype(std::span<const View> views) {
  std::map<DType, std::vector<size_t>> groups;
  for (size_t i = 0; i < views.size(); ++i) groups[views[i].dtype].push_back(i);
  return groups;
}

void clip(std::span<const View> views, const void* (*kernel)(DType), double limit, const void* scale, bool wide,
          LaunchList& list) {
  for (const auto& [dtype, members] : by_dtype(views)) {
    ClipArgs args{};
    args.scale = scale;
    args.limit = scale == nullptr ? round_to_compute(limit, dtype) : limit;
    args.wide = wide ? 1 : 0;
    list_launches(kernel(dtype), args, kClipPointers, members, chunk_for(views, 256), views, list,
                  [&](ClipArgs& to, uint32_t slot, size_t i) { to.x[slot] = views[i].pointer(); });
  }
}

void clip_norm(const Call& call, LaunchList& list) {
  const auto tensors = call.list(0);
  const View& out = call.operand(1);
  bool wide = out.dtype == DType::F64;
  std::vector<Leaves> leaves;
  uint64_t count = 0;
  for (const View& view : tensors) {
    const auto own = static_cast<uint32_t>((view.elements + kLeaf - 1) / kLeaf);
    leaves.push_back({count, own, view.dtype == DType::F64 ? 1u : 0u});
    count += own;
    wide = wide || view.dtype == DType::F64;
  }
  auto* const sums = list.scratch<double>(tensors.size() * 8);
  auto* const leaf_sums = list.scratch<double>(count * 8);
  void* const scale = list.scratch(8);
  for (const auto& [dtype, members] : by_dtype(tensors))
    list_launches(squares_kernel(dtype), SquaresArgs{}, kSquaresPointers, members, kLeaf, tensors, list,
                  [&](SquaresArgs& to, uint32_t slot, size_t i) {
                    to.tensor[slot] = {tensors[i].pointer(), leaf_sums + leaves[i].begin};
                  });
  const double limit = call.command.attr_float("c");
  ClipNormArgs args{};
  args.norm = out.pointer();
  args.scale = scale;
  args.leaves = leaf_sums;
  args.sums = sums;
  args.of = list.constant<Leaves>(std::as_bytes(std::span(leaves)));
  args.tensors = static_cast<int64_t>(tensors.size());
  args.limit = wide ? limit : static_cast<double>(static_cast<float>(limit));
  args.dtype = static_cast<uint32_t>(out.dtype);
  args.wide = wide ? 1 : 0;
  list.add(clip_norm_kernel(), LaunchList::Shape{}, args, kClipNormPointers);
  clip(tensors, clip_scale_kernel, 0, scale, wide, list);
}

}  // namespace

bool lower_optimizer(const Call& call, LaunchList& list) {
  if (!attributes_of(call.opcode()).empty()) {
    update(call, list);
    return true;
  }
  if (call.opcode() == Opcode::ClipNorm) {
    clip_norm(call, list);
    return true;
  }
  if (call.opcode() != Opcode::ClipValue) return false;
  clip(call.operands, clip_value_kernel, call.command.attr_float("c"), nullptr, false, list);
  return true;
}

}  // namespace tape::cuda
