// Optimizers, a launch for each parameter; CLIP_VALUE; CLIP_NORM, whose scale the tensors read from scratch.
#include "cuda_backend/kernels/optimizer.h"

#include "cuda_backend/lower/reduce.h"

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

void update(const Call& call, LaunchList& list) {
  const size_t rest = call.command.ends.size() - 4;  // the operand lr
  const auto params = call.list(0);
  const auto at = [&](size_t operand, size_t i) -> void* {
    const auto views = call.list(operand);
    return views.empty() ? nullptr : views[i].pointer();
  };
  for (size_t i = 0; i < params.size(); ++i) {
    OptimizerArgs args{};
    const View& grad = call.list(1)[i];
    args.param = params[i].pointer();
    args.grad = grad.pointer();
    for (size_t k = 0; k + 2 < rest; ++k) args.state[k] = at(2 + k, i);
    args.master = at(rest + 2, i);
    args.low = at(rest + 3, i);
    args.lr = call.operand(rest).pointer();
    args.step = call.operand(rest + 1).pointer<const int64_t>();
    args.elements = static_cast<uint64_t>(params[i].elements);
    const std::vector<const char*> names = attributes_of(call.opcode());
    for (size_t k = 0; k < names.size(); ++k)
      args.constant[k] = round_to_compute(call.command.attr_float(names[k]), params[i].dtype);
    args.lr_dtype = static_cast<uint32_t>(call.operand(rest).dtype);
    if (args.low != nullptr) args.low_dtype = static_cast<uint32_t>(call.list(rest + 3)[i].dtype);
    args.wide_grad = is_half(params[i].dtype) && grad.dtype == DType::F32 ? 1 : 0;
    args.nesterov = call.opcode() == Opcode::Sgd && call.command.attr_bool("nesterov") ? 1 : 0;
    if (args.elements != 0)
      list.add(optimizer_kernel(call.opcode(), params[i].dtype), LaunchList::over(args.elements), args,
               kOptimizerPointers);
  }
}

void clip(const View& view, const void* kernel, double limit, const void* scale, bool wide, LaunchList& list) {
  if (view.elements == 0) return;
  ClipArgs args{};
  args.x = view.pointer();
  args.scale = scale;
  args.elements = static_cast<uint64_t>(view.elements);
  args.limit = limit;
  args.wide = wide ? 1 : 0;
  list.add(kernel, LaunchList::over(args.elements), args, kClipPointers);
}

void clip_norm(const Call& call, LaunchList& list) {
  const auto tensors = call.list(0);
  const View& out = call.operand(1);
  bool wide = out.dtype == DType::F64;
  for (const View& view : tensors) wide = wide || view.dtype == DType::F64;
  auto* const sums = list.scratch<double>(tensors.size() * 8);
  void* const scale = list.scratch(8);
  ClipNormArgs args{};
  for (size_t i = 0; i < tensors.size(); ++i) {
    const View& view = tensors[i];
    ReduceArgs sum{};
    sum.dst = sums + i;
    sum.src = view.pointer();
    sum.outer = sum.inner = 1;
    sum.size = view.elements;
    sum.finish = static_cast<uint32_t>(Finish::Store);
    sum.dst_dtype = static_cast<uint32_t>(DType::F64);
    sum.empty = view.elements == 0 ? 1 : 0;
    reduce_pass(Take::Square, view.dtype, true, sum, list);
  }
  const double limit = call.command.attr_float("c");
  args.norm = out.pointer();
  args.scale = scale;
  args.sums = sums;
  args.tensors = static_cast<int64_t>(tensors.size());
  args.limit = wide ? limit : static_cast<double>(static_cast<float>(limit));
  args.dtype = static_cast<uint32_t>(out.dtype);
  args.wide = wide ? 1 : 0;
  list.add(clip_norm_kernel(), LaunchList::Shape{}, args, kClipNormPointers);
  for (const View& view : tensors) clip(view, clip_scale_kernel(view.dtype), 0, scale, wide, list);
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
  for (const View& view : call.operands)
    clip(view, clip_value_kernel(view.dtype), round_to_compute(call.command.attr_float("c"), view.dtype), nullptr,
         false, list);
  return true;
}

}  // namespace tape::cuda
