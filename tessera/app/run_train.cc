// tessera train
#include "tessera/app/launch.h"
#include "tessera/app/model_files.h"
#include "tessera/app/trainer.h"
#include "tessera/app/verbs.h"

namespace tessera {

int run_train(const Invocation& invocation) {
  check_model_is_kept(invocation.settings());
  const bool first = !invocation.world || invocation.world->rank() == 0;
  Console console =
      first ? Console::of_process(invocation.settings().bars(), Console::LostOutput::is_noted) : Console::muted();
  Trainer trainer(invocation.settings(), resolved_config_text(invocation.resolved), console, invocation.world,
                  *invocation.signals);
  return run_among_ranks(
      invocation, [&] { return trainer.run(); }, [&] { trainer.unlock_output(); });
}

}  // namespace tessera
