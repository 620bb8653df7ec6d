// tessera train
#include <utility>

#include "tessera/app/preflight.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/app/verbs.h"
#include "tessera/load/model_place.h"
#include "tessera/train/trainer.h"

namespace tessera {

int run_train(const Invocation& invocation) {
  check_model_is_kept(invocation.settings());
  tracker_options(invocation.resolved);  // refuses faults before the run starts
  Console console = console_of(invocation, Console::LostOutput::is_noted);
  Record preflight = run_preflight(invocation);
  const auto weights =
      starts_from_checkpoint(invocation.settings()) ? Session::Weights::not_yet : Session::Weights::read_ahead;
  Session session(invocation.settings(), invocation.world, console, weights);
  Trainer trainer(session, invocation.resolved, [&] { return invocation.signals->received(); });
  trainer.track(tracker_options(trainer.resolved()));
  trainer.note_preflight(std::move(preflight));
  StopSignals& signals = *invocation.signals;
  const StartScope start(&signals);
  signals.before_end([&] { trainer.unlock_output(); });
  return run_among_ranks(
      invocation, [&] { return trainer.run([&] { signals.end_start(); }); }, [&] { trainer.unlock_output(); });
}

}  // namespace tessera
