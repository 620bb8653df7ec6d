// tessera train
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/app/preflight.h"
#include "tessera/app/run_as_ranks.h"
#include "tessera/app/verbs.h"
#include "tessera/load/model_place.h"
#include "tessera/settings/engine_options.h"
#include "tessera/train/trainer.h"

namespace tessera {

namespace {

TrackerOptions tracker_options(const ResolvedSettings& resolved) {
  const Settings& settings = resolved.settings;
  TrackerOptions options;
  options.tensorboard = settings.tracker.tensorboard;
  options.wandb = settings.tracker.wandb;
  options.output_dir = settings.output_dir;
  options.tracker_dir = settings.tracker_dir;
  if (options.wandb) options.wandb_variables = wandb_variables(environment_of_process());
  const auto config = resolved_config_json(resolved);
  for (const auto& [name, entry] : config.items()) options.config[name] = entry.at("value");
  return options;
}

}  // namespace

int run_train(const Invocation& invocation) {
  check_model_is_kept(invocation.settings());
  TrackerOptions trackers = tracker_options(invocation.resolved);
  Console console = console_of(invocation, Console::LostOutput::is_noted);
  Record preflight = run_preflight(invocation);
  const auto weights =
      starts_from_checkpoint(invocation.settings()) ? Session::Weights::not_yet : Session::Weights::read_ahead;
  Session session(invocation.settings(), invocation.world, console, weights);
  Trainer trainer(session, resolved_config_text(invocation.resolved), [&] { return invocation.signals->received(); });
  trainer.track(std::move(trackers));
  trainer.note_preflight(std::move(preflight));
  StopSignals& signals = *invocation.signals;
  const StartScope start(&signals);
  signals.before_end([&] { trainer.unlock_output(); });
  return run_among_ranks(
      invocation, [&] { return trainer.run([&] { signals.end_start(); }); }, [&] { trainer.unlock_output(); });
}

}  // namespace tessera
