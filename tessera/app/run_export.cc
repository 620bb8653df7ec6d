// tessera export: makes a model folder or a GGUF file from a training checkpoint, or from a model and an adapter. Makes
// a GGUF file also from a model folder.
#include <fmt/format.h>

#include "tessera/app/verbs.h"
#include "tessera/base/error.h"
#include "tessera/log/console.h"
#include "tessera/train/export_model.h"

namespace tessera {

int run_export(const Invocation& invocation) {
  Console console = Console::of_process();
  const Exported exported = export_model(invocation.settings(), console);
  console.print(fmt::format("{}: {}", exported.path.string(), exported.what));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
