// Backends that tests bring along: a library named by TAPE_TEST_BACKENDS, which no build installs.
#pragma once

#include <memory>
#include <string>

#include "vm/backend.h"

/// What the library exports as `tape_test_backend`. `spec`: the whole name, "faulty:lane:SUM". `backend` holds a CPU
/// backend, which the library wraps or replaces; false with the reason where it does not know the name.
extern "C" using tape_test_backend_entry =
    bool(*)(const char* spec, std::unique_ptr<tape::Backend>* backend, std::string* reason);
