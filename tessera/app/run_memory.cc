// tessera memory: peak, mean and mode of the memory that a run has logged.
#include <fmt/format.h>

#include "tessera/app/verbs.h"
#include "tessera/log/console.h"
#include "tessera/log/memory_logs.h"

namespace tessera {

int run_memory(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  if (settings.gpu_only && settings.cpu_only) {
    throw UsageError(invocation.resolved.where("cpu_only"), "contradicts gpu_only", "Give one of the two, or neither");
  }
  if (invocation.operands.size() > 1) {
    throw UsageError(invocation.operands[1], "unexpected argument", "Usage: tessera memory FOLDER");
  }
  const std::string& folder = invocation.operands[0];
  Console console = Console::of_process();
  bool found = false;
  const auto show = [&](const MemoryAnalysis& analysis) {
    std::string_view text = analysis.text;
    if (text.ends_with('\n')) text.remove_suffix(1);
    console.print(text);
    found = found || analysis.found;
  };
  if (!settings.cpu_only) show(analyse_gpu_logs(folder));
  if (!settings.gpu_only) show(analyse_cpu_logs(folder));
  return static_cast<int>(found ? ExitCode::kDone : ExitCode::kBadInput);
}

}  // namespace tessera
