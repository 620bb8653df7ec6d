// tessera train
#include "tessera/app/trainer.h"
#include "tessera/app/verbs.h"

namespace tessera {

int run_train(const Invocation& invocation) {
  Console console = Console::of_process();
  for (const std::string& warning : invocation.resolved.warnings) console.note("warning: " + warning);
  Trainer trainer(invocation.settings(), resolved_config_text(invocation.resolved), console);
  return trainer.run();
}

}  // namespace tessera
