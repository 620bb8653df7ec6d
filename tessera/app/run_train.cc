// tessera train
#include "tessera/app/trainer.h"
#include "tessera/app/verbs.h"

namespace tessera {

int run_train(const Invocation& invocation) {
  Console console = Console::of_process(invocation.settings().bars());
  Trainer trainer(invocation.settings(), resolved_config_text(invocation.resolved), console);
  return trainer.run();
}

}  // namespace tessera
