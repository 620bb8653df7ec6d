// tessera export: a Hugging Face model folder from a training checkpoint.
#include <fmt/format.h>

#include <filesystem>

#include "tessera/app/machine.h"
#include "tessera/app/model_files.h"
#include "tessera/app/train_state.h"
#include "tessera/app/verbs.h"
#include "tessera/app/worker.h"
#include "tessera/report/console.h"

namespace tessera {

namespace fs = std::filesystem;

int run_export(const Invocation& invocation) {
  const Settings& settings = invocation.settings();
  Console console = Console::of_process();
  Worker worker(settings);
  ThreadPool& pool = worker.pool();
  const ModelConfig config = model_config_of(settings);
  const Tokenizer tokenizer = tokenizer_of(settings, config);
  const Checkpoint checkpoint = Checkpoint::open_verified(settings.checkpoint, &pool);
  // Refuses the configuration of another model, which may have tensors of the same sizes.
  TrainState::from_json(checkpoint.trainer_state(), model_fingerprint(config),
                        (checkpoint.folder() / "trainer_state.json").string());
  Engine engine(worker.place(), config, {});
  restore_checkpoint(checkpoint, engine, false, pool);
  save_model(engine, settings.output_dir, tokenizer, settings);
  console.print(fmt::format("{}: the model of step {}", settings.output_dir, checkpoint.step()));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
