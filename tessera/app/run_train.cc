// tessera train
#include "tessera/app/model_files.h"
#include "tessera/app/trainer.h"
#include "tessera/app/verbs.h"

namespace tessera {

int run_train(const Invocation& invocation) {
  check_model_is_kept(invocation.settings());
  Console console = Console::of_process(invocation.settings().bars());
  Trainer trainer(invocation.settings(), resolved_config_text(invocation.resolved), console);
  return trainer.run();
}

}  // namespace tessera
