// tessera export: makes a Hugging Face model folder from a training checkpoint.
#include <fmt/format.h>

#include "tessera/app/machine.h"
#include "tessera/app/verbs.h"
#include "tessera/base/option_names.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/load/data_report.h"
#include "tessera/load/model_place.h"
#include "tessera/load/saved_model.h"
#include "tessera/session/session.h"
#include "tessera/settings/engine_options.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/replaceable.h"
#include "tessera/train/train_state.h"

namespace tessera {

namespace {

// Sets --checkpoint if --model names the checkpoint.
void settle_checkpoint(Settings& settings) {
  if (!settings.checkpoint.empty()) return;
  if (!names_a_shape(settings)) check_place_of_model(settings);
  const std::filesystem::path folder = folder_of_model(settings);
  if (!is_checkpoint(folder)) {
    throw UsageError(option_place("model"),
                     fmt::format("\"{}\" is not a checkpoint of a run", printable(settings.model)),
                     "Give --checkpoint with a checkpoint, or with the output folder of a run for its newest one");
  }
  settings.checkpoint = folder;
}

// Throws UsageError if the export would replace the folder of --model.
void check_model_stays(const Settings& settings) {
  std::error_code ignored;  // an unreadable path is reported when it is used
  if (settings.model.empty() || !std::filesystem::equivalent(folder_of_model(settings), settings.output_dir, ignored)) {
    return;
  }
  throw UsageError(
      option_place("output_dir"),
      fmt::format("\"{}\" is the folder of --model, which the export would replace", printable(settings.output_dir)),
      "Give another --output-dir");
}

}  // namespace

int run_export(const Invocation& invocation) {
  Settings settings = invocation.settings();
  settle_checkpoint(settings);
  check_model_stays(settings);
  check_replaceable(settings.output_dir, why_no_saved_model);  // before the checkpoint is read, which may take long
  Console console = Console::of_process();
  Session session(settings, nullptr, console, Session::Weights::not_yet);
  const auto warn = [&](const std::string& text) { console.note("warning: " + text); };
  const Checkpoint checkpoint = find_checkpoint(settings.checkpoint, session.world(), warn, &session.pool());
  if (settings.model.empty()) settings.model = checkpoint.folder();  // the checkpoint has the files of its model
  const std::string where = (checkpoint.folder() / "trainer_state.json").string();
  const Record fingerprint = TrainState::fingerprint_in(checkpoint.trainer_state(), where);
  if (settings.eos_token.empty()) settings.eos_token = end_token_in(fingerprint);
  session.read_model();
  // from_json() throws if the checkpoint belongs to another model. Without this check, the export would accept such a
  // checkpoint if its arrays have the names and sizes that this model needs.
  const ModelConfig& config = session.config();
  const TrainState state = TrainState::from_json(checkpoint.trainer_state(), model_fingerprint(config), where);
  const Model model(config, session.worker().device(), frozen_in(fingerprint));
  const LoadedTypes loaded =
      state.loaded_types ? *state.loaded_types : loaded_types_of(model, settings, session.world());
  const CheckpointReader reader(checkpoint, model, session.world(), session.pool());
  const ModelWriter writer(model, saved_model_options(settings, config, session.tokenizer(), loaded), session.world(),
                           session.pool());
  writer.write(settings.output_dir, [&](const ModelWriter::Write& write) {
    for (int64_t u = 0; u < model.num_units(); ++u) {
      for (const Section section : kSections) {
        const int64_t elems = model.unit(u).table().num_elems(section);  // reads one section at a time, as fp32
        if (elems == 0) continue;
        const Buffer buffer =
            session.worker().host().allocate(elems * static_cast<int64_t>(sizeof(float)), Category::staging);
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
