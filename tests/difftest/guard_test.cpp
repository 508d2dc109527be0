// --guard: who writes where it must not is named, who reads what nobody wrote is noted, and sound tapes play as ever.
#include "embed/guard.h"

#include <gtest/gtest.h>

#include <tuple>

#include "embed/backends.h"
#include "embed/open.h"
#include "tests/difftest/faulty.h"
#include "tests/difftest/support.h"
#include "vm/error.h"
#include "vm/machine.h"

namespace tape {
namespace {

constexpr const char* kText = R"(.module some
.param x f32[33,7] uniform lo=0.5 hi=1 seed=3
.param w f32[7,7] uniform lo=0.1 hi=0.5 seed=4
.output y f32[33,7]
.tape main
  MATMUL a, x, w
  LOG l, a
  REPEAT 3
    MATMUL d, a, w
    TANH a, d
  END
  ADD y, a, l
.end
)";

Machine guarded(const std::string& backend) {
  MachineOptions options;
  options.reuse = false;
  options.guard = kGuardBytes;
  return Machine(make_guarded(open_backend(backend)), options);
}

/// The fault of a guarded run; empty for none.
std::string fault_of(Machine& machine, const std::string& text) {
  machine.add(test::module_of(text, "some.tape"));
  try {
    machine.run("main");
  } catch (const Fault& fault) {
    return fault.what();
  }
  return "";
}

bool noted(Machine& machine, const std::string& part) {
  for (const std::string& note : machine.backend().capabilities().notes)
    if (note.find(part) != std::string::npos) return true;
  return false;
}

TEST(Guard, SoundTapesPlayAsEver) {
  for (const char* backend : {"cpu", "cpu64"}) {
    Machine plain(open_backend(backend));
    plain.add(test::module_of(kText, "some.tape"));
    plain.run("main");
    Machine machine = guarded(backend);
    EXPECT_EQ(fault_of(machine, kText), "");
    EXPECT_EQ(machine.retrieve_stored("y").bytes, plain.retrieve_stored("y").bytes);
    EXPECT_FALSE(noted(machine, "NaN"));
    machine.run("main");  // what the first run left in the memory is in nobody's way
  }
}

TEST(Guard, NamesWhoWritesBehindItsResult) {
  const test::FaultyBackends faulty;
  const struct {
    const char* backend;
    const char* place;
    const char* tensor;
  } cases[] = {
      {"faulty:behind:MATMUL:a", "some.tape:6:3", "behind a f32[33,7]"},
      {"faulty:behind:LOG", "some.tape:7:3", "behind l f32[33,7]"},
      {"faulty:behind:MATMUL:d", "some.tape:9:5", "behind d f32[33,7]"},
      {"faulty:behind:ADD", "some.tape:12:3", "behind y f32[33,7]"},
  };
  for (const auto& one : cases) {
    Machine machine = guarded(one.backend);
    const std::string fault = fault_of(machine, kText);
    EXPECT_NE(fault.find(one.place), std::string::npos) << one.backend << ": " << fault;
    EXPECT_NE(fault.find(one.tensor), std::string::npos) << one.backend << ": " << fault;
  }
}

TEST(Guard, NamesWhoWritesToAnotherTensor) {
  const test::FaultyBackends faulty;
  for (const auto& [backend, place, tensor] : {std::tuple("faulty:source:MATMUL:a", "some.tape:6:3", "of x f32[33,7]"),
                                               std::tuple("faulty:source:TANH", "some.tape:10:5", "of d f32[33,7]"),
                                               std::tuple("faulty:source:ADD", "some.tape:12:3", "of a f32[33,7]")}) {
    Machine machine = guarded(backend);
    const std::string fault = fault_of(machine, kText);
    EXPECT_NE(fault.find(place), std::string::npos) << backend << ": " << fault;
    EXPECT_NE(fault.find(tensor), std::string::npos) << backend << ": " << fault;
  }
}

TEST(Guard, WhatNobodyWroteIsNaN) {
  const test::FaultyBackends faulty;
  for (const auto& [backend, place] : {std::pair("faulty:stale:MATMUL:a", "some.tape:6:3: MATMUL"),
                                       std::pair("faulty:stale:LOG", "some.tape:7:3: LOG"),
                                       std::pair("faulty:nan:MATMUL:d", "some.tape:9:5: MATMUL")}) {
    Machine machine = guarded(backend);
    EXPECT_EQ(fault_of(machine, kText), "");
    EXPECT_TRUE(noted(machine, place)) << backend;
  }
}

TEST(Guard, SamplesPlayAsEver) {
  // Streams move cursors and generators count, though no command names them as a result; loops, calls, optimizers.
  for (const auto& [file, tape] : {std::pair("digits.tape", "train"), std::pair("decode.tape", "main"),
                                   std::pair("addition.tape", "train"), std::pair("linear_regression.tape", "main")}) {
    const VerifiedModule module = open_module(std::string(TAPE_SOURCE_DIR "/samples/") + file);
    Machine plain(open_backend("cpu"));
    Machine machine = guarded("cpu");
    for (Machine* each : {&plain, &machine}) {
      each->add(module);
      each->run(tape);
    }
    const Snapshot expected = plain.snapshot(), got = machine.snapshot();
    ASSERT_EQ(got.tensors.size(), expected.tensors.size());
    for (size_t i = 0; i < got.tensors.size(); ++i)
      EXPECT_EQ(got.tensors[i].second.bytes, expected.tensors[i].second.bytes) << file << " " << got.tensors[i].first;
    EXPECT_FALSE(noted(machine, "NaN")) << file << ": " << machine.backend().capabilities().notes.back();
  }
}

}  // namespace
}  // namespace tape
