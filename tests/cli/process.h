// Plays the `tape` binary as a shell would: arguments, standard input, both outputs and the exit code.
#pragma once

#include <sys/wait.h>

#include <cstdlib>
#include <string>

#include "tests/cli/folder.h"

namespace tape::test {

struct Result {
  int code = -1;
  std::string out, err;
};

/// `arguments` are shell words, as a user would type them.
inline Result run_tape(const Folder& folder, const std::string& arguments) {
  const std::string out = folder / ".out";
  const std::string err = folder / ".err";
  const std::string command =
      "cd '" + folder.path() + "' && NO_COLOR=1 " TAPE_PROGRAM " " + arguments + " >'" + out + "' 2>'" + err + "'";
  const int status = std::system(command.c_str());
  return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, read_text(out), read_text(err)};
}

}  // namespace tape::test
