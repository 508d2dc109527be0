// See op_parity.h.
#include "difftest/op_parity.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <cstring>
#include <mutex>
#include <optional>
#include <thread>

#include "difftest/case_player.h"
#include "difftest/op_bounds.h"
#include "embed/backends.h"
#include "opcodes/infer.h"
#include "vm/command_buffer.h"
#include "vm/compare.h"
#include "vm/error.h"

namespace tape {
namespace {

using difftest::CasePlayer;
using difftest::CaseResult;
using difftest::Demand;
using difftest::OracleBounds;
using difftest::TensorBound;

constexpr unsigned char kReferencePoison = 0x7F, kSubjectPoison = 0xFF, kOraclePoison = 0x7F;
constexpr double kSmallProduct = 0x1p28;  // flops below which products are in canonical order
constexpr int64_t kOwnRows = 16;          // MATMUL of halves is in canonical order up to here
constexpr int kSamples = 4, kMoreSamples = 64;

std::unique_ptr<Backend> open_cpu(bool oracle) {
  BackendOptions options;
  options.threads = 1;
  options.canonical_order = !oracle;
  return open_backend(oracle ? "cpu64" : "cpu", options);
}

int64_t rows_of(const Shape& shape) {
  const int64_t columns = shape.rank() == 0 ? 1 : shape[shape.rank() - 1];
  return columns == 0 ? 0 : shape.elements() / columns;
}

class Worker {
 public:
  Worker(const ParityOptions& options, ParityReport& report)
      : options_(options),
        report_(report),
        subject_(options.subject(), kSubjectPoison),
        reference_(open_cpu(false), kReferencePoison),
        oracle_(open_cpu(true), kOraclePoison) {}

  /// What is wrong with a case; empty for nothing.
  std::string wrong_with(const OpCase& one) {
    wrong_.clear();
    check(one);
    return wrong_;
  }
  [[nodiscard]] const CaseResult& expected() const { return expected_; }

  void check(const OpInfo& op, DType dtype) {
    size_t shown = 0;
    std::vector<OpCase> cases;
    try {
      cases = make_op_cases(op, dtype, options_.seed, options_.set);
    } catch (const Error& error) {
      ++report_.failed;
      report_.failures.emplace_back(error.what());
    }
    for (const OpCase& one : cases) {
      wrong_.clear();
      try {
        check(one);
      } catch (const Error& error) {
        const std::string what = error.what();
        if (error.code() == Code::Unavailable && what.find("no CUDA kernel for") != std::string::npos) {
          report_.missing.insert(fmt::format("{} {}: {}", op.mnemonic, name_of(dtype), what));
          return;
        }
        wrong_ = what;
      }
      if (wrong_.empty()) continue;
      ++report_.failed;
      if (shown++ < 3) report_.failures.push_back(fmt::format("{} (seed {}): {}", one.name, options_.seed, wrong_));
    }
  }

 private:
  void fail(const std::string& what) {
    if (wrong_.empty()) wrong_ = what;
  }

  void check(const OpCase& one) {
    expected_ = reference_.play(one);
    const CaseResult& expected = expected_;
    const CaseResult got = subject_.play(one);
    ++report_.cases;
    if (!expected.overwritten.empty()) fail("the CPU wrote " + expected.overwritten);
    if (!got.overwritten.empty()) fail("wrote " + got.overwritten);
    if (expected.fault != got.fault) fail(fmt::format("fault `{}`, the CPU has `{}`", got.fault, expected.fault));
    if (expected.traffic != got.traffic) fail("STORE or TRACE handed over other values");
    if (!expected.fault.empty()) {
      ++report_.faults;
      check_untouched(one, expected, reference_.poison());
      check_untouched(one, got, subject_.poison());
      return;
    }
    bounds_.reset();
    const std::vector<bool> written = CasePlayer::written(one);
    for (size_t id = 0; id < got.tensors.size(); ++id) {
      ++report_.tensors;
      report_.elements += static_cast<uint64_t>(got.tensors[id].shape.elements());
      const Comparison exact = compare_exact(expected.tensors[id], got.tensors[id]);
      report_.equal += exact.elements - exact.different;
      const Demand demand = written[id] ? difftest::demand_of(one, id, options_.own_products) : Demand::Bits;
      if (!exact.equal() && demand == Demand::Bits) fail(name(one, id) + exact.text);
      if (written[id] && is_float(got.tensors[id].dtype)) check_oracle(one, id, expected, got, demand);
      if (written[id] && !is_float(got.tensors[id].dtype) && !exact.equal()) fail(name(one, id) + exact.text);
    }
  }

  [[nodiscard]] static std::string name(const OpCase& one, size_t id) {
    return one.module->module().tensors[id].name + ": ";
  }

  /// After a fault every tensor is as it was.
  void check_untouched(const OpCase& one, const CaseResult& result, unsigned char poison) {
    if (one.op->has(kControlEffect)) return;
    const std::vector<bool> whole = CasePlayer::written_whole(one);
    for (size_t id = 0; id < result.tensors.size(); ++id) {
      const std::vector<std::byte>& bytes = result.tensors[id].bytes;
      const bool same =
          whole[id] ? std::all_of(bytes.begin(), bytes.end(), [&](std::byte b) { return b == std::byte{poison}; })
                    : bytes == one.values[id].bytes;
      if (!same) fail(name(one, id) + "was written in spite of the fault");
    }
  }

  void check_oracle(const OpCase& one, size_t id, const CaseResult& expected, const CaseResult& got, Demand demand) {
    const bool edges = one.inputs == CaseInputs::Edge;
    if (edges || !options_.against_oracle) {
      if (demand != Demand::Bits) check_close(one, id, expected.tensors[id], got.tensors[id], demand);
      return;
    }
    if (one.op->has(kControlEffect)) return;
    if (!bounds_) bounds_.emplace(one, oracle_, kSamples);
    if (!bounds_->values().fault.empty()) return fail("cpu64 faults: " + bounds_->values().fault);
    std::string first = outside(one, id, got.tensors[id], *bounds_);
    if (!first.empty() && !bounds_->closed())
      first = outside(one, id, got.tensors[id], OracleBounds(one, oracle_, kMoreSamples));
    if (!first.empty()) fail(name(one, id) + first);
  }

  /// The first element outside its bound; empty for none.
  std::string outside(const OpCase& one, size_t id, const HostArray& got, const OracleBounds& bounds) {
    const TensorBound bound = bounds.of(id);
    std::string first;
    for (size_t i = 0; i < bound.oracle.size(); ++i) {
      const double x = element_as_f64(got.bytes, got.dtype, i), expected = bound.oracle[i];
      ++report_.oracle_elements;
      if (std::isnan(expected) != std::isnan(x) && std::isnan(expected)) {
        if (first.empty()) first = fmt::format("[{}] is {}, cpu64 has NaN", i, x);
        continue;
      }
      if (!(bound.allowed[i] < HUGE_VAL) || (bounds.may_overflow() && !std::isfinite(x))) continue;
      const double error = std::abs(x - expected), share = error == 0 ? 0 : error / bound.allowed[i];
      if (share <= 1) {
        if (share > report_.worst_share) {
          report_.worst_share = share;
          report_.worst_case = one.name;
        }
        continue;
      }
      if (first.empty())
        first = fmt::format("[{}] is {}, cpu64 has {}, off by {}, allowed {}", i, x, expected, error, bound.allowed[i]);
    }
    return first;
  }

  /// Functions of two libraries: infinities and NaN where the CPU has them, else within 2^-40.
  void check_close(const OpCase& one, size_t id, const HostArray& expected, const HostArray& got, Demand demand) {
    if (demand == Demand::Bound) return;  // sums overflow in one order and not in another
    const auto n = static_cast<size_t>(got.shape.elements());
    for (size_t i = 0; i < n; ++i) {
      const double a = element_as_f64(expected.bytes, expected.dtype, i), b = element_as_f64(got.bytes, got.dtype, i);
      ++report_.close;
      if (std::isnan(a) && std::isnan(b)) continue;
      if (a == b) continue;
      if (std::isfinite(a) && std::isfinite(b) && std::abs(a - b) <= 0x1p-40 * std::abs(a)) continue;
      return fail(fmt::format("{}[{}] is {}, the CPU has {}", name(one, id), i, b, a));
    }
  }

  const ParityOptions& options_;
  ParityReport& report_;
  CasePlayer subject_, reference_, oracle_;
  CaseResult expected_;
  std::optional<OracleBounds> bounds_;
  std::string wrong_;
};

void merge(ParityReport& into, const ParityReport& from) {
  into.cases += from.cases;
  into.faults += from.faults;
  into.tensors += from.tensors;
  into.elements += from.elements;
  into.equal += from.equal;
  into.close += from.close;
  into.oracle_elements += from.oracle_elements;
  into.failed += from.failed;
  into.failures.insert(into.failures.end(), from.failures.begin(), from.failures.end());
  into.missing.insert(from.missing.begin(), from.missing.end());
  if (from.worst_share > into.worst_share) {
    into.worst_share = from.worst_share;
    into.worst_case = from.worst_case;
  }
}

}  // namespace

Demand difftest::demand_of(const OpCase& one, size_t tensor, bool own_products) {
  const bool wide = one.dtype == DType::F64 && is_float(one.module->module().tensors[tensor].dtype);
  const Module& module = one.module->module();
  switch (one.op->bits) {
    case Bits::None:
    case Bits::Exact:
      return Demand::Bits;
    case Bits::Functor:
      return wide ? Demand::Function : Demand::Bits;
    case Bits::Ordered:
      return wide && !difftest::is_linear(*one.op) ? Demand::Function : Demand::Bits;
    case Bits::Library:
      return Demand::Bound;
    case Bits::Matmul:
      break;
  }
  const Command command = commands_of(module, module.tapes[0])[0].command;
  std::vector<OperandType> types;
  for (const uint32_t id : command.ids)
    types.push_back(id == kAbsent ? OperandType{}
                                  : OperandType{module.tensors[id].name, module.tensors[id].dtype,
                                                module.tensors[id].shape, true, true});
  const bool reduced = one.op->attribute("math") >= 0 && command.has_attr("math");
  const bool own = own_products && is_float(one.dtype);
  const bool attention = one.op->shape == ShapeRule::Attention || one.op->shape == ShapeRule::AttentionGrad;
  const bool halves =
      std::string_view(one.op->mnemonic) == "MATMUL" && is_half(one.dtype) && rows_of(types[0].shape) > kOwnRows;
  if (reduced || own || attention || halves || flops_of(command, types) >= kSmallProduct) return Demand::Bound;
  return wide ? Demand::Function : Demand::Bits;
}

ParityReport check_parity(const ParityOptions& options) {
  ParityReport total;
  std::vector<std::pair<const OpInfo*, DType>> jobs;
  for (const OpInfo& op : kOps) {
    const bool wanted =
        options.only.empty() || std::count(options.only.begin(), options.only.end(), std::string(op.mnemonic)) != 0;
    if (!wanted) continue;
    ++total.rows;
    for (const DType dtype : case_dtypes(op)) jobs.emplace_back(&op, dtype);
  }
  total.typed_rows = jobs.size();
  std::atomic<size_t> next{0};
  std::mutex mutex;
  const auto work = [&] {
    ParityReport mine;
    try {
      Worker worker(options, mine);
      for (size_t job = next++; job < jobs.size(); job = next++) worker.check(*jobs[job].first, jobs[job].second);
    } catch (const std::exception& error) {
      mine.failures.emplace_back(error.what());
      ++mine.failed;
    }
    const std::lock_guard lock(mutex);
    merge(total, mine);
  };
  std::vector<std::thread> threads;
  for (unsigned i = 1; i < options.threads; ++i) threads.emplace_back(work);
  work();
  for (std::thread& thread : threads) thread.join();
  std::sort(total.failures.begin(), total.failures.end());
  return total;
}

namespace difftest {

struct CaseChecker::Impl {
  explicit Impl(const ParityOptions& given) : options(given), worker(options, report) {}
  ParityOptions options;
  ParityReport report;
  Worker worker;
};

CaseChecker::CaseChecker(const ParityOptions& options) : impl_(std::make_unique<Impl>(options)) {}
CaseChecker::~CaseChecker() = default;
std::string CaseChecker::check(const OpCase& one) {
  return impl_->worker.wrong_with(one);
}
const CaseResult& CaseChecker::expected() const {
  return impl_->worker.expected();
}
const ParityReport& CaseChecker::report() const {
  return impl_->report;
}

}  // namespace difftest

}  // namespace tape
