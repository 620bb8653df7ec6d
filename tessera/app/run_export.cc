// tessera export: makes a model folder or a GGUF file from a training checkpoint, or from a model and an adapter. Makes
// a GGUF file also from a model folder.
#include "tessera/app/verbs.h"
#include "tessera/base/error.h"
#include "tessera/log/console.h"
#include "tessera/train/export_model.h"

namespace tessera {

int run_export(const Invocation& invocation) {
  Console console = Console::of_process();
  console.print(export_model(invocation.settings(), console));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
