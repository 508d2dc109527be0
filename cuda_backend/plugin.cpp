// The functions behind the boundary. Every exception ends here, as a record.
#include <algorithm>
#include <cstdio>
#include <cstring>
#include <memory>

#include "cuda_backend/card.h"
#include "cuda_backend/cublaslt.h"
#include "cuda_backend/executable.h"
#include "cuda_backend/handles.h"
#include "cuda_backend/kernels/initial.h"
#include "cuda_backend/nvrtc/program.h"

using tape::Code;
using tape::Error;

struct tape_cuda_backend {
  int device = 0;
  tape_cuda_card card{};
  bool hopper = false;
  tape_cuda_options options{};
  std::unique_ptr<tape::cuda::Stream> stream;
  std::vector<std::string> notes;
  std::string lost;  // the CUDA error after which nothing on the card can be relied on
};

struct tape_cuda_executable {
  tape_cuda_backend* backend;
  tape::cuda::CudaExecutable executable;
};

struct tape_cuda_fetch {
  tape_cuda_backend* backend;
  std::unique_ptr<tape::cuda::FetchedBytes> fetched;
};

namespace {

void report(tape_cuda_error* error, Code code, const char* text) {
  error->code = static_cast<int32_t>(code);
  const size_t length = std::min(std::strlen(text), sizeof error->text - 1);
  std::memcpy(error->text, text, length);
  error->text[length] = 0;
}

/// Plays f; its value, or nothing and an error.
template <class F>
auto guarded(tape_cuda_error* error, F&& f) -> decltype(f()) {
  error->code = 0;
  try {
    return f();
  } catch (const Error& caught) {
    report(error, caught.code(), caught.what());
  } catch (const std::exception& caught) {
    report(error, Code::Internal, caught.what());
  }
  return decltype(f())();
}

/// The same on the card of a backend, unless that is lost. An error of CUDA is a bug of ours and sticks to the context.
template <class F>
auto guarded(tape_cuda_backend* backend, tape_cuda_error* error, F&& f) -> decltype(f()) {
  return guarded(error, [&] {
    if (!backend->lost.empty()) throw Error(Code::Internal, backend->lost);
    try {
      tape::cuda::check(cudaSetDevice(backend->device), "cudaSetDevice");
      return f();
    } catch (const tape::cuda::CudaError& caught) {
      backend->lost = fmt::format("{}: the Machine is lost, make another", caught.what());
      throw Error(Code::Internal, backend->lost);
    }
  });
}

void probe(tape_cuda_card* card, tape_cuda_error* error) {
  guarded(error, [&] {
    *card = tape::cuda::find_card().card;
    if (const std::string reason = tape::cuda::why_no_compiler(); !reason.empty()) {
      const size_t length = std::strlen(card->driver);
      std::snprintf(card->driver + length, sizeof card->driver - length, ", MAP is interpreted: %s", reason.c_str());
    }
  });
}

tape_cuda_backend* open_card(const tape_cuda_options* options, tape_cuda_card* card, tape_cuda_error* error) {
  return guarded(error, [&] {
    auto backend = std::make_unique<tape_cuda_backend>();
    const tape::cuda::FoundCard found = tape::cuda::find_card();
    backend->device = found.device;
    backend->card = found.card;
    backend->hopper = found.hopper;
    backend->options = *options;
    backend->stream = std::make_unique<tape::cuda::Stream>();
    backend->notes = tape::cuda::library_notes();
    *card = backend->card;
    return backend.release();
  });
}

void close_card(tape_cuda_backend* backend) {
  static_cast<void>(cudaSetDevice(backend->device));
  delete backend;
}

void* allocate(tape_cuda_backend* backend, uint64_t bytes, tape_cuda_error* error) {
  return guarded(backend, error, [&] {
    tape::cuda::DeviceMemory memory(bytes);
    tape::cuda::check(cudaMemsetAsync(memory.get(), 0, bytes == 0 ? 1 : bytes, backend->stream->get()),
                      "cudaMemsetAsync");
    return memory.release();
  });
}

void release(tape_cuda_backend* backend, void* address) {
  static_cast<void>(cudaSetDevice(backend->device));
  static_cast<void>(cudaFree(address));
}

void copy(tape_cuda_backend* backend, void* to, const void* from, uint64_t bytes, cudaMemcpyKind kind,
          tape_cuda_error* error) {
  guarded(backend, error, [&] {
    if (bytes == 0) return;
    tape::cuda::check(cudaMemcpyAsync(to, from, bytes, kind, backend->stream->get()), "cudaMemcpyAsync");
    backend->stream->wait();
  });
}
void upload(tape_cuda_backend* backend, void* to, const void* from, uint64_t bytes, tape_cuda_error* error) {
  copy(backend, to, from, bytes, cudaMemcpyHostToDevice, error);
}
void download(tape_cuda_backend* backend, void* to, const void* from, uint64_t bytes, tape_cuda_error* error) {
  copy(backend, to, from, bytes, cudaMemcpyDeviceToHost, error);
}

void initialise(tape_cuda_backend* backend, void* to, const tape_cuda_initial* value, tape_cuda_error* error) {
  guarded(backend, error, [&] {
    if (value->elements == 0) return;
    const tape::cuda::LaunchList::Shape shape = tape::cuda::LaunchList::over((value->elements + 3) / 4);
    tape::cuda::Launch launch;
    launch.kernel = tape::cuda::initial_kernel(value->form, static_cast<tape::DType>(value->dtype));
    launch.grid[0] = static_cast<uint32_t>(shape.x);
    tape::cuda::InitialArgs args{nullptr, to, *value};
    tape::cuda::launch_kernel(launch, &args, backend->stream->get());
  });
}

tape::cuda::LowerOptions lower_options(const tape_cuda_backend& backend) {
  return {backend.options.canonical_order != 0, backend.hopper, backend.options.profile != 0};
}

void add_note(tape_cuda_backend& backend, const std::string& note) {
  constexpr size_t kMost = 16;
  std::vector<std::string>& notes = backend.notes;
  if (notes.size() < kMost && std::find(notes.begin(), notes.end(), note) == notes.end()) notes.push_back(note);
}

tape::cuda::PlayOptions play_options(tape_cuda_backend& backend) {
  tape::cuda::PlayOptions options;
  options.mode = static_cast<tape::cuda::PlayMode>(backend.options.mode);
  options.branches = static_cast<tape::cuda::Branches>(backend.options.branches);
  options.programmatic = backend.hopper;
  options.processors = backend.card.processors;
  options.note = [&backend](const std::string& note) { add_note(backend, note); };
  return options;
}

uint64_t select_kernel(tape_cuda_backend* backend, const tape_cuda_command* command, tape_cuda_error* error) {
  return guarded(backend, error, [&] {
    tape::cuda::LaunchList list;
    const tape::cuda::LowerOptions options = lower_options(*backend);
    list.canonical = options.canonical;
    list.clusters = options.clusters;
    tape::cuda::lower(tape::cuda::make_call(*command, 0), list);
    return list.scratch_bytes();
  });
}

tape_cuda_executable* prepare(tape_cuda_backend* backend, const tape_cuda_plan* plan, tape_cuda_error* error) {
  return guarded(backend, error, [&] {
    return new tape_cuda_executable{backend,
                                    {*backend->stream, *plan, lower_options(*backend), play_options(*backend)}};
  });
}

void drop(tape_cuda_executable* executable) {
  static_cast<void>(cudaSetDevice(executable->backend->device));
  static_cast<void>(cudaStreamSynchronize(executable->backend->stream->get()));
  delete executable;
}

void run(tape_cuda_executable* executable, uint64_t first, uint64_t last, uint64_t times,
         const tape_cuda_stream* streams, tape_cuda_error* error) {
  guarded(executable->backend, error, [&] { executable->executable.run(first, last, times, streams); });
}

void bind(tape_cuda_executable* executable, uint32_t tensor, void* address, tape_cuda_error* error) {
  guarded(executable->backend, error, [&] {
    executable->backend->stream->wait();
    executable->executable.bind(tensor, address);
  });
}

tape_cuda_fetch* fetch(tape_cuda_executable* executable, const tape_cuda_range* ranges, uint32_t count,
                       tape_cuda_error* error) {
  return guarded(executable->backend, error, [&] {
    return new tape_cuda_fetch{executable->backend, executable->executable.fetch({ranges, count})};
  });
}

int fetched(tape_cuda_fetch* fetch, int wait, const void** bytes, tape_cuda_error* error) {
  return guarded(fetch->backend, error, [&] {
    *bytes = fetch->fetched->bytes();
    return static_cast<int>(wait != 0 ? fetch->fetched->wait() : fetch->fetched->state());
  });
}

void drop_fetch(tape_cuda_fetch* fetch) {
  static_cast<void>(cudaSetDevice(fetch->backend->device));
  delete fetch;
}

void fault(tape_cuda_executable* executable, tape_cuda_fault* fault, tape_cuda_error* error) {
  *fault = {};
  guarded(executable->backend, error, [&] { *fault = executable->executable.take_fault(); });
}

void synchronize(tape_cuda_backend* backend, tape_cuda_error* error) {
  guarded(backend, error, [&] { backend->stream->wait(); });
}

void notes(tape_cuda_backend* backend, char* text, uint64_t size) {
  uint64_t at = 0;
  tape_cuda_error error{};
  guarded(&error, [&] {
    for (const std::string& note : tape::cuda::library_notes()) add_note(*backend, note);
    for (const std::string& note : backend->notes) {
      if (at + note.size() + 2 > size) break;
      std::memcpy(text + at, note.data(), note.size());
      at += note.size();
      text[at++] = '\n';
    }
  });
  if (size != 0) text[at] = 0;
}

void profile(tape_cuda_executable* executable, tape_cuda_profile* profile, tape_cuda_error* error) {
  guarded(executable->backend, error, [&] { executable->executable.take_profile(*profile); });
}

constexpr tape_cuda_plugin kPlugin{TAPE_CUDA_BOUNDARY_VERSION,
                                   &probe,
                                   &open_card,
                                   &close_card,
                                   &allocate,
                                   &release,
                                   &upload,
                                   &download,
                                   &select_kernel,
                                   &prepare,
                                   &drop,
                                   &run,
                                   &bind,
                                   &fetch,
                                   &fetched,
                                   &drop_fetch,
                                   &fault,
                                   &synchronize,
                                   &notes,
                                   &profile,
                                   &initialise};

}  // namespace

extern "C" [[gnu::visibility("default")]] const struct tape_cuda_plugin* tape_cuda_plugin_v1() {
  return &kPlugin;
}
