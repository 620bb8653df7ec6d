#include "tessera/app/memory_check.h"

#include <fmt/format.h>

#include "tessera/app/machine.h"
#include "tessera/report/text.h"

namespace tessera {

void check_memory(const ModelConfig& config, const EngineOptions& options, const WorkBounds& work) {
  const std::optional<int64_t> usable_bytes = usable_memory_bytes();
  if (!usable_bytes) return;
  const int64_t needed_bytes = plan_run(config, options, work, {}).peak_bytes();
  if (needed_bytes <= *usable_bytes) return;
  throw OutOfMemoryError(
      "memory",
      fmt::format("the run needs {}, and this machine has {}", format_bytes(needed_bytes), format_bytes(*usable_bytes)),
      "Use a smaller --batch-size or --max-length, --activation-checkpointing block, or a smaller "
      "model; tessera plan shows what takes how much");
}

}  // namespace tessera
