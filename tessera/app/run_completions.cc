// tessera completions: prints a script that completes commands in a shell. tessera man: prints the manual page.
#include <fmt/format.h>

#include <algorithm>

#include "tessera/app/completion_table.h"
#include "tessera/app/help.h"
#include "tessera/base/error.h"
#include "tessera/log/console.h"

namespace tessera {

int run_completions(const Invocation& invocation) {
  const std::vector<std::string> shells = completed_shells();
  if (invocation.operands.size() > 1) {
    throw UsageError(invocation.operands[1], "is a second shell", "Give one shell: " + enumerated(shells, "or"));
  }
  const std::string& shell = invocation.operands.front();
  if (std::ranges::find(shells, shell) == shells.end()) {
    throw UsageError("completions", fmt::format("\"{}\" is not a shell that Tessera knows", printable(shell)),
                     fmt::format("Give {}", enumerated(shells, "or")));
  }
  std::string script = completion_script(shell, all_verbs());
  script.pop_back();  // the console adds it
  Console::of_process().print(script);
  return static_cast<int>(ExitCode::kDone);
}

int run_man(const Invocation&) {
  std::string page = manual_page(all_verbs());
  page.pop_back();
  Console::of_process().print(page);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
