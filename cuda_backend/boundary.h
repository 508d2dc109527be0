// The C boundary between embed/ and the CUDA plugin (libtapedeck_cuda13.so): one struct of function pointers with a
// version, plain data across it, errors and faults as records. Each side copies what it keeps; no C++ type, exception
// or allocation crosses. Addresses of device memory are opaque here.
#pragma once

#include <cstdint>

extern "C" {

#define TAPE_CUDA_BOUNDARY_VERSION 6u
#define TAPE_CUDA_ENTRY "tape_cuda_plugin_v1"

struct tape_cuda_backend;
struct tape_cuda_executable;

struct tape_cuda_error {
  int32_t code;  // tape::Code; 0: none
  char text[508];
};

struct tape_cuda_attribute {
  uint32_t present;
  uint32_t count;  // of `list`
  int64_t i;
  double f;
  const int64_t* list;
};

struct tape_cuda_type {
  uint32_t dtype;  // code of dtypes.def
  uint32_t rank;
  int64_t dims[8];
};

/// A command as opcodes/command.h has it; `types` is parallel to `ids`.
struct tape_cuda_command {
  uint32_t opcode;
  uint32_t ids_count, ends_count, attributes_count;
  const uint32_t* ids;
  const uint32_t* ends;
  const tape_cuda_attribute* attributes;
  const tape_cuda_type* types;
  uint32_t stream;  // LOAD: id of its stream
  uint32_t cursor;  // LOAD: the tensor of its cursor
};

/// Where a tensor has its bytes; a local lies in the arena, others at `address`.
struct tape_cuda_tensor {
  uint32_t in_arena;
  uint64_t offset, bytes;
  void* address;
  uint32_t first;  // the command its bytes are taken from
};

struct tape_cuda_stream {
  uint64_t rows;  // 0: nothing bound
  const void* const* columns;
  const uint8_t* on_host;  // by column: its rows lie in host memory
  uint64_t version;        // another one when rows or columns have changed
};

/// Bytes of device memory, and their way to the host.
struct tape_cuda_range {
  const void* address;
  uint64_t bytes;
};
struct tape_cuda_fetch;

/// Values of STORE and TRACE, in command order, within run and fault: `position` in the ids of the command. Not 0: no
/// more of them, the run ends where it is.
typedef int (*tape_cuda_deliver)(void* user, uint64_t command, uint32_t position, const void* bytes, uint64_t size);

struct tape_cuda_plan {
  const tape_cuda_command* commands;
  const uint32_t* matching;  // by command, as Plan::matching
  const uint64_t* scratch;   // by command: offset in the arena
  const uint64_t* scratch_bytes;
  uint64_t commands_count;
  const tape_cuda_tensor* tensors;
  uint64_t tensors_count;
  void* arena;
  uint32_t streams_count;
  uint32_t poison;    // locals and scratch are filled with 0xFF bytes before their first use
  uint32_t delivers;  // whether STORE and TRACE have a reader
  tape_cuda_deliver deliver;
  void* user;
  /// By command, the commands it follows, at its own loop level: before[before_ends[i - 1]] up to before_ends[i]. Null:
  /// a chain in command order.
  const uint32_t* before;
  const uint64_t* before_ends;
  /// The same of commands of the pass before, for one pass right behind another. Null: it follows all of them.
  const uint32_t* again;
  const uint64_t* again_ends;
  const uint8_t* checked;  // by command: 1 where an earlier one has checked the same, so that it need not. Null: none
};

enum tape_cuda_fault_kind {
  TAPE_CUDA_NO_FAULT = 0,
  TAPE_CUDA_INDEX,       // value a at `position` of operand `operand` is outside [0, limit)
  TAPE_CUDA_LABEL,       // the same of a label
  TAPE_CUDA_DIVISOR,     // integer a at `position`; operand -1: the constant
  TAPE_CUDA_NOT_FINITE,  // element with bits a
  TAPE_CUDA_NOT_EQUAL,   // elements with bits a, b of operands 0, 1
  TAPE_CUDA_NOT_CLOSE,   // the same, distance and allowed
  TAPE_CUDA_CURSOR,      // row a of a stream of `limit` rows
  TAPE_CUDA_START,       // start a of axis `position`, operand `operand`, is outside [0, limit]
  TAPE_CUDA_COUNT,       // REPEAT count a above `limit`
  TAPE_CUDA_LOGITS,      // the row of logits from `position` on has no finite largest one
  TAPE_CUDA_LENGTH,      // length a at `position` of operand `operand` is outside [0, limit)
  TAPE_CUDA_POSITION,    // position a at `position` of operand `operand` is negative
  TAPE_CUDA_BODY,        // MAP: command `operand` of the body refuses integer a at `position` of the full shape
};

struct tape_cuda_fault {
  uint32_t kind;
  int32_t operand;  // position in ids
  uint64_t command;
  int64_t position;  // row-major
  int64_t limit;
  uint64_t a, b;
  double distance, allowed;
  uint64_t step;  // the pass it stopped, over the runs since the last fault was taken
};

struct tape_cuda_card {
  char name[128];
  char driver[128];  // "driver for CUDA 13.0", and what is missing beside it
  uint64_t memory;   // bytes free for one process
  uint64_t total;
  uint32_t major, minor;  // compute capability
  uint32_t processors;
};

struct tape_cuda_time {
  double seconds;
  uint64_t plays;
};

/// How long the commands of an executable took since that was last asked.
struct tape_cuda_profile {
  tape_cuda_time* commands;  // commands_count of them, filled in
  uint64_t commands_count;
  double copy_rate;      // bytes read and written in a second by a copy within the card; 0: not known
  double math_rates[4];  // operations in a second at best: f64, f32, tf32, halves; 0: not known
  char how[128];         // what measured
};

struct tape_cuda_options {
  uint32_t canonical_order;  // MATMUL in canonical order at every size
  uint32_t mode;             // 0: a graph of nodes, 1: a captured graph, 2: launches into a stream
  uint32_t branches;         // of a graph. 0: a chain, 1: side by side where it pays, 2: wherever nothing forbids it
  uint32_t profile;          // commands are timed; without CUPTI they play in a stream
};

/// An initial value, as tape::Initialiser (vm/backend.h) has it.
enum tape_cuda_form { TAPE_CUDA_FILL = 0, TAPE_CUDA_EYE, TAPE_CUDA_IOTA, TAPE_CUDA_UNIFORM, TAPE_CUDA_NORMAL };
struct tape_cuda_initial {
  uint32_t form, dtype;
  uint64_t elements, rows, columns, element, other;
  float a, b;
  uint64_t seed, stream;
};

struct tape_cuda_plugin {
  uint32_t version;
  /// The card that would be used, or why there is none.
  void (*probe)(tape_cuda_card* card, tape_cuda_error* error);
  tape_cuda_backend* (*open)(const tape_cuda_options* options, tape_cuda_card* card, tape_cuda_error* error);
  void (*close)(tape_cuda_backend*);
  void* (*allocate)(tape_cuda_backend*, uint64_t bytes, tape_cuda_error* error);
  void (*release)(tape_cuda_backend*, void* address);
  void (*upload)(tape_cuda_backend*, void* to, const void* from, uint64_t bytes, tape_cuda_error* error);
  void (*download)(tape_cuda_backend*, void* to, const void* from, uint64_t bytes, tape_cuda_error* error);
  /// Bytes of scratch of a command; an error when the card has no kernel for it.
  uint64_t (*select)(tape_cuda_backend*, const tape_cuda_command* command, tape_cuda_error* error);
  tape_cuda_executable* (*prepare)(tape_cuda_backend*, const tape_cuda_plan* plan, tape_cuda_error* error);
  void (*drop)(tape_cuda_executable*);
  /// Commands [first, last), `times` passes one after another without looking at the host in between. Runs may follow
  /// one another until `fault` is called; after a fault they leave nothing behind.
  void (*run)(tape_cuda_executable*, uint64_t first, uint64_t last, uint64_t times, const tape_cuda_stream* streams,
              tape_cuda_error* error);
  void (*bind)(tape_cuda_executable*, uint32_t tensor, void* address, tape_cuda_error* error);
  /// Begins to copy ranges to the host, as they will be when all that was run is done. Nothing waits for it.
  tape_cuda_fetch* (*fetch)(tape_cuda_executable*, const tape_cuda_range* ranges, uint32_t count,
                            tape_cuda_error* error);
  /// 0: they are underway, and never where `wait` is set; 1: there, at `bytes`, one behind the other; 2: a fault came
  /// before them.
  int (*fetched)(tape_cuda_fetch*, int wait, const void** bytes, tape_cuda_error* error);
  void (*drop_fetch)(tape_cuda_fetch*);
  /// Waits; the fault of the runs since the last call, taken. kind 0: none.
  void (*fault)(tape_cuda_executable*, tape_cuda_fault* fault, tape_cuda_error* error);
  void (*synchronize)(tape_cuda_backend*, tape_cuda_error* error);
  /// What changes results from outside (a missing library, the environment), known by now: lines into `text`.
  void (*notes)(tape_cuda_backend*, char* text, uint64_t size);
  /// Of an executable made with the option, when what it launched is over.
  void (*profile)(tape_cuda_executable*, tape_cuda_profile* profile, tape_cuda_error* error);
  /// Writes an initial value; the memory is zero-filled.
  void (*initialise)(tape_cuda_backend*, void* to, const tape_cuda_initial* value, tape_cuda_error* error);
};

/// The only symbol of the plugin: `const tape_cuda_plugin* tape_cuda_plugin_v1()`.
typedef const tape_cuda_plugin* (*tape_cuda_entry)();
}
