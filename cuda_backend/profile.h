// How long the kernels of every command of an executable took: by CUPTI in a graph as well as in a stream, else by
// events around every launch of a stream.
#pragma once

#include <atomic>
#include <cstdint>
#include <vector>

#include "cuda_backend/boundary.h"
#include "cuda_backend/graph.h"
#include "cuda_backend/handles.h"
#include "cuda_backend/launch.h"

namespace tape::cuda {

class Profile {
 public:
  /// Whether commands can be told apart inside a graph. The first call must come before graphs are made.
  [[nodiscard]] static bool sees_graphs();

  explicit Profile(uint64_t commands) : before_(commands), seconds_(commands), kernels_(commands) {}
  ~Profile();
  Profile(const Profile&) = delete;
  Profile& operator=(const Profile&) = delete;

  /// A graph was made: what follows what in it, or one after another where it was captured.
  void add_graph(const GraphPlan& plan, const std::vector<Launch>& launches, bool captured);
  /// Around a launch into a stream, where graphs are not seen.
  void begin(uint32_t command, const Stream& stream);
  void end(const Stream& stream);
  /// The times since it was last called, when everything launched is over. `launches` are also the executable's name to
  /// CUPTI.
  void take(const std::vector<Launch>& launches, const std::vector<CapturedCall>& captured, const Stream& stream,
            tape_cuda_profile& into);

 private:
  struct Interval {
    uint32_t command = 0;
    cudaEvent_t begin = nullptr, end = nullptr;
  };
  void flush(const Stream& stream);
  void add_traced(const std::vector<Launch>& launches);

  std::vector<std::vector<uint32_t>> before_;  // by command, in graphs
  std::vector<double> seconds_;                // by command
  std::vector<uint64_t> kernels_;
  std::vector<Interval> intervals_;
  size_t used_ = 0;                // of intervals_, since the last flush
  std::atomic<bool> held_{false};  // the stream waits, so that launches queue up behind one another
};

/// Bytes read and written in a second by a copy within the card; 0 when there is no memory for one.
[[nodiscard]] double copy_rate(const Stream& stream);
/// Floating-point operations in a second of f64, f32, tf32 and halves by the card's data sheet; 0: not known.
void math_rates(double (&rates)[4]);

}  // namespace tape::cuda
