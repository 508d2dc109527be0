// Random commands, CATEGORICAL and ADVANCE: the counter moves in a kernel behind the draw, so that every block reads
// the old one.
#include "cuda_backend/kernels/random.h"

#include "cuda_backend/boundary.h"
#include "cuda_backend/kernels/categorical.h"
#include "cuda_backend/lower/sort.h"

namespace tape::cuda {
namespace {

void advance(const View& counter, uint64_t offset, int64_t by, LaunchList& list) {
  AdvanceArgs args{};
  args.counter = symbolic<void>(counter.address + offset);
  args.by = by;
  args.wide = counter.dtype == DType::I64 ? 1 : 0;
  LaunchList::Shape shape;
  shape.block_x = 1;
  list.add(advance_kernel(), shape, args, kAdvancePointers);
}

void draw(const Call& call, LaunchList& list, const void* kernel, const View& rng, double p, double q) {
  const View& dst = call.operand(0);
  DrawArgs args{};
  args.dst = dst.pointer();
  args.rng = rng.pointer<int64_t>();
  args.elements = static_cast<uint64_t>(dst.elements);
  args.p = p;
  args.q = q;
  if (call.opcode() == Opcode::Dropout) {
    args.mask = call.operand(1).pointer();
    args.src = call.operand(2).pointer();
  }
  if (args.elements == 0) return;
  const uint64_t blocks = (args.elements + 3) / 4;
  list.add(kernel, LaunchList::over(blocks), args, kDrawPointers);
  advance(rng, 8, static_cast<int64_t>(blocks), list);
}

void categorical(const Call& call, LaunchList& list) {
  const View &dst = call.operand(0), &logits = call.operand(1), &rng = call.operand(2);
  const int64_t rows = dst.elements, classes = logits.shape[logits.shape.rank() - 1];
  if (rows == 0) return;
  LaunchList::Shape by_row;
  by_row.x = static_cast<uint64_t>(rows);
  LargestArgs largest{};
  largest.largest = list.scratch<int64_t>(static_cast<uint64_t>(rows) * 8);
  largest.logits = logits.pointer();
  largest.rows = rows;
  largest.classes = classes;
  list.add(largest_kernel(logits.dtype), by_row, largest, kLargestPointers);
  LargestCheckArgs check{};
  check.fault = list.fault();
  check.largest = largest.largest;
  check.rows = rows;
  check.classes = classes;
  check.site = {call.index, TAPE_CUDA_LOGITS, static_cast<int32_t>(call.command.ends[0])};
  list.add(largest_check_kernel(), LaunchList::over(static_cast<uint64_t>(rows)), check, kLargestCheckPointers);

  CategoricalArgs args{};
  args.dst = dst.pointer();
  args.logits = logits.pointer();
  args.rng = rng.pointer<const int64_t>();
  args.largest = largest.largest;
  args.rows = rows;
  args.classes = classes;
  args.temperature = call.command.attr_float("temperature");
  args.top_p = call.command.attr_float("top_p");
  args.wide = dst.dtype == DType::I64 ? 1 : 0;
  if (args.temperature != 0) {
    const int64_t chunks = (classes + kCategoricalChunk - 1) / kCategoricalChunk;
    args.sums = list.scratch<double>(static_cast<uint64_t>(rows * chunks) * 8);
    const int64_t top_k = call.command.attr_int("top_k");
    if (top_k != 0 || args.top_p != 1) {
      args.count = top_k == 0 ? classes : std::min(top_k, classes);
      auto* const order = list.scratch<int32_t>(static_cast<uint64_t>(rows * args.count) * 4);
      falling_positions(call, logits, rows, classes, args.count, order, list);
      args.order = order;
      args.kept = list.scratch<uint8_t>(static_cast<uint64_t>(rows * classes));
    }
  }
  list.add(categorical_kernel(logits.dtype), by_row, args, kCategoricalPointers);
  advance(rng, 8, (rows + 3) / 4, list);
}

}  // namespace

bool lower_random(const Call& call, LaunchList& list) {
  const auto attribute = [&](const char* name) { return call.command.attr_float(name); };
  const DType dtype = call.operands.empty() ? DType::F32 : call.operands[0].dtype;
  switch (call.opcode()) {
    case Opcode::RandomUniform:
      draw(call, list, uniform_kernel(dtype), call.operand(1), attribute("lo"), attribute("hi"));
      return true;
    case Opcode::RandomNormal:
      draw(call, list, normal_kernel(dtype), call.operand(1), attribute("mean"), attribute("std"));
      return true;
    case Opcode::RandomBernoulli:
      draw(call, list, bernoulli_kernel(dtype), call.operand(1), attribute("p"), 0);
      return true;
    case Opcode::Dropout:
      draw(call, list, dropout_kernel(dtype), call.operand(3), round_to_compute(attribute("p"), dtype), 0);
      return true;
    case Opcode::DropoutGrad: {
      DropoutGradArgs args{};
      args.dst = call.operand(0).pointer();
      args.mask = call.operand(1).pointer();
      args.g = call.operand(2).pointer();
      args.elements = static_cast<uint64_t>(call.operand(0).elements);
      args.p = round_to_compute(attribute("p"), dtype);
      args.accumulate = call.accumulate ? 1 : 0;
      if (args.elements != 0)
        list.add(dropout_grad_kernel(dtype), LaunchList::over(args.elements), args, kDropoutGradPointers);
      return true;
    }
    case Opcode::Categorical:
      categorical(call, list);
      return true;
    case Opcode::Advance:
      advance(call.operand(0), 0, call.command.attr_int("by"), list);
      return true;
    default:
      return false;
  }
}

}  // namespace tape::cuda
