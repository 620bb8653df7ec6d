// tessera config
#include <nlohmann/json.hpp>

#include "tessera/app/verbs.h"
#include "tessera/base/error.h"
#include "tessera/log/console.h"

namespace tessera {

int run_config(const Invocation& invocation) {
  const ResolvedSettings& resolved = invocation.resolved;
  std::string text =
      invocation.settings().json ? resolved_config_json(resolved).dump(2) : resolved_config_text(resolved);
  if (text.ends_with('\n')) text.pop_back();
  Console::of_process().print(text);
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
