// tessera export: makes a Hugging Face model folder from a training checkpoint.
#include <fmt/format.h>

#include "tessera/app/machine.h"
#include "tessera/app/verbs.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/load/data_report.h"
#include "tessera/load/model_files.h"
#include "tessera/load/model_place.h"
#include "tessera/load/model_writer.h"
#include "tessera/report/console.h"
#include "tessera/session/worker.h"
#include "tessera/settings/engine_options.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/replaceable.h"
#include "tessera/train/train_state.h"

namespace tessera {

// Sets --checkpoint if --model names the checkpoint.
static void settle_checkpoint(Settings& settings) {
  if (!settings.checkpoint.empty()) return;
  if (!names_a_shape(settings)) check_place_of_model(settings);
  const std::filesystem::path folder = folder_of_model(settings);
  if (!is_checkpoint(folder)) {
    throw UsageError("--model", fmt::format("\"{}\" is not a checkpoint of a run", printable(settings.model)),
                     "Give --checkpoint with a checkpoint, or with the output folder of a run for its newest one");
  }
  settings.checkpoint = folder;
}

// Throws UsageError if the export would replace the folder of --model.
static void check_model_stays(const Settings& settings) {
  std::error_code ignored;  // an unreadable path is reported when it is used
  if (settings.model.empty() || !std::filesystem::equivalent(folder_of_model(settings), settings.output_dir, ignored)) {
    return;
  }
  throw UsageError(
      "--output-dir",
      fmt::format("\"{}\" is the folder of --model, which the export would replace", printable(settings.output_dir)),
      "Give another --output-dir");
}

int run_export(const Invocation& invocation) {
  Settings settings = invocation.settings();
  settle_checkpoint(settings);
  check_model_stays(settings);
  check_replaceable(settings.output_dir, why_no_saved_model);  // before the checkpoint is read, which may take long
  Console console = Console::of_process();
  Worker worker(settings);
  const auto warn = [&](const std::string& text) { console.note("warning: " + text); };
  const auto alone = make_self_communicator();
  const Checkpoint checkpoint = find_checkpoint(settings.checkpoint, *alone, warn, &worker.pool());
  if (settings.model.empty()) settings.model = checkpoint.folder();  // the checkpoint has the files of its model
  ModelConfig config = model_config_of(settings);
  // from_json() throws if the checkpoint belongs to another model. Without this check, the export would accept such a
  // checkpoint if its arrays have the names and sizes that this model needs.
  const std::string where = (checkpoint.folder() / "trainer_state.json").string();
  const TrainState state = TrainState::from_json(checkpoint.trainer_state(), model_fingerprint(config), where);
  const Record fingerprint = TrainState::fingerprint_in(checkpoint.trainer_state(), where);
  config.frozen = frozen_in(fingerprint);
  if (settings.eos_token.empty()) settings.eos_token = end_token_in(fingerprint);
  const Tokenizer tokenizer = tokenizer_of(settings, config);
  const Model model(config, worker.device());
  const LoadedTypes loaded = state.loaded_types ? *state.loaded_types : loaded_types_of(model, settings, *alone);
  const CheckpointReader reader(checkpoint, model, *alone, worker.pool());
  const ModelWriter writer(model, tokenizer, settings, loaded, *alone, worker.pool());
  writer.write(settings.output_dir, [&](const ModelWriter::Write& write) {
    for (int64_t u = 0; u < model.num_units(); ++u) {
      for (const Section section : kSections) {
        const int64_t elems = model.unit(u).table().num_elems(section);  // reads one section at a time, as fp32
        if (elems == 0) continue;
        const Buffer buffer = worker.host().allocate(elems * static_cast<int64_t>(sizeof(float)), Category::staging);
        const View values = buffer.view({elems}, DType::f32);
        reader.read(parameters_of(section), u, {0, elems}, values);
        write(section, u, {0, elems}, values);
      }
    }
  });
  note_model(config, console);
  console.print(fmt::format("{}: the model of step {}", settings.output_dir, checkpoint.step()));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
