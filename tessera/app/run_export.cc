// tessera export: makes a model folder from a training checkpoint, or from a model and an adapter.
#include <fmt/format.h>

#include "tessera/app/machine.h"
#include "tessera/app/verbs.h"
#include "tessera/base/option_names.h"
#include "tessera/load/adapter_files.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/load/data_report.h"
#include "tessera/load/initial_weights.h"
#include "tessera/load/merged_model.h"
#include "tessera/load/model_place.h"
#include "tessera/load/saved_model.h"
#include "tessera/session/session.h"
#include "tessera/settings/engine_options.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/replaceable.h"
#include "tessera/train/train_state.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// Sets --checkpoint if --model names the checkpoint.
void settle_checkpoint(Settings& settings) {
  if (!settings.checkpoint.empty()) return;
  if (!names_a_shape(settings)) check_place_of_model(settings);
  const fs::path folder = folder_of_model(settings);
  if (!is_checkpoint(folder)) {
    throw UsageError(option_place("model"),
                     fmt::format("\"{}\" is not a checkpoint of a run", printable(settings.model)),
                     "Give --checkpoint with a checkpoint, or with the output folder of a run for its newest one. To "
                     "merge an adapter into a model, give --adapter and --merge");
  }
  settings.checkpoint = folder;
}

// Throws UsageError if the export would replace the folder of --model.
void check_model_stays(const Settings& settings) {
  std::error_code ignored;  // an unreadable path is reported when it is used
  if (settings.model.empty() || !fs::equivalent(folder_of_model(settings), settings.output_dir, ignored)) return;
  throw UsageError(
      option_place("output_dir"),
      fmt::format("\"{}\" is the folder of --model, which the export would replace", printable(settings.output_dir)),
      "Give another --output-dir");
}

// Writes a model. read(section, unit, values) writes the elements of a section as f32 to `values`.
void write_model(Session& session, const Settings& settings, const Model& model, const ModelWriter& writer,
                 const std::function<void(Section, int64_t, View)>& read) {
  writer.write(settings.output_dir, [&](const ModelWriter::Write& write) {
    for (int64_t u = 0; u < model.num_units(); ++u) {
      for (const Section section : kSections) {
        const int64_t elems = model.unit(u).table().num_elems(section);  // reads one section at a time
        if (elems == 0 || !writer.has(section)) continue;
        const Buffer buffer =
            session.worker().host().allocate(elems * static_cast<int64_t>(sizeof(float)), Category::staging);
        const View values = buffer.view({elems}, DType::f32);
        read(section, u, values);
        write(section, u, {0, elems}, values);
      }
    }
  });
}

// Writes the model with its adapter added to its weights.
void write_merged(Session& session, const Settings& settings, const LoadedTypes& loaded, const ReadTensor& read) {
  Device& device = session.worker().device();
  ModelConfig plain_config = session.config();
  plain_config.adapter.reset();
  plain_config.quantization.reset();
  const Model adapted(session.config(), device), plain(plain_config, device);
  const ModelWriter writer(plain, saved_model_options(settings, plain.config(), session.tokenizer(), loaded),
                           session.world(), session.pool());
  MergedModel merged(adapted, plain, read, session.pool());
  write_model(session, settings, plain, writer,
              [&](Section section, int64_t unit, View values) { merged.read(section, unit, writer, values); });
  const RoundingLoss& loss = merged.loss();
  session.console().note(
      loss.tensor.empty()
          ? "Merged without a rounding error"
          : fmt::format(
                "Merged in fp32 and rounded once. The largest rounding error is {:.3g}, in {}, where the adapter "
                "changes elements by up to {:.3g}",
                loss.lost, plain.file_name(loss.tensor), loss.change));
}

int merge_adapter(const Settings& settings, Console& console) {
  if (!settings.merge) {
    throw UsageError(option_place("init_adapter"), "an adapter can only be exported into its model", "Add --merge");
  }
  if (!settings.checkpoint.empty()) {
    throw UsageError(option_place("checkpoint"), "contradicts the adapter: a checkpoint of its run has it",
                     "Give only one of the two");
  }
  check_model_stays(settings);
  check_replaceable(settings.output_dir, why_no_saved_model);
  Session session(settings, nullptr, console, Session::Weights::not_yet);
  session.read_model();
  const Model model(session.config(), session.worker().device());
  const ReadTensor read =
      reader_of_adapted(model, folder_of_model(settings), adapter_folder_of(settings), session.pool());
  write_merged(session, settings, loaded_types_of(model, settings, session.world()), read);
  console.print(
      fmt::format("{}: {} with the adapter {}", settings.output_dir, settings.model, settings.init_adapter.front()));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace

int run_export(const Invocation& invocation) {
  Settings settings = invocation.settings();
  Console console = Console::of_process();
  if (!settings.init_adapter.empty()) return merge_adapter(settings, console);
  settle_checkpoint(settings);
  check_model_stays(settings);
  check_replaceable(settings.output_dir, why_no_saved_model);  // before the checkpoint is read, which may take long
  Session session(settings, nullptr, console, Session::Weights::not_yet);
  const auto warn = [&](const std::string& text) { console.note("warning: " + text); };
  const Checkpoint checkpoint = find_checkpoint(settings.checkpoint, session.world(), warn, &session.pool());
  if (settings.model.empty()) settings.model = checkpoint.folder();  // the checkpoint has the files of its model
  const std::string where = (checkpoint.folder() / "trainer_state.json").string();
  const Record fingerprint = TrainState::fingerprint_in(checkpoint.trainer_state(), where);
  if (settings.eos_token.empty()) settings.eos_token = end_token_in(fingerprint);
  session.read_model();
  ModelConfig& config = session.config();
  config.adapter = adapter_in_checkpoint(checkpoint.folder());
  config.quantization = quantization_in_checkpoint(checkpoint.folder());
  if (!settings.merge && settings.base_dtype != Settings::BaseDtype::automatic) {
    throw UsageError(option_place("base_dtype"), "does nothing without " + option("merge"), "Remove it, or merge");
  }
  if (settings.merge && !config.adapter) {
    throw UsageError(option_place("merge"), fmt::format("{} has no adapter", checkpoint.folder().string()),
                     "Remove --merge");
  }
  // from_json() throws if the checkpoint belongs to another model. Without this check, the export would accept such a
  // checkpoint if its arrays have the names and sizes that this model needs.
  const TrainState state = TrainState::from_json(checkpoint.trainer_state(), model_fingerprint(config), where);
  const Model model(config, session.worker().device(), frozen_in(fingerprint));
  const LoadedTypes loaded =
      state.loaded_types ? *state.loaded_types : loaded_types_of(model, settings, session.world());
  if (settings.merge) {
    const CheckpointWeights source(checkpoint.folder(), session.world(), session.pool());
    const bool as_computed = settings.base_dtype == Settings::BaseDtype::nf4;
    if (config.quantization && !as_computed && !source.has_weights_before_quantization()) {
      throw UsageError(option_place("merge"),
                       fmt::format("{} has only the weights in 4 bits", checkpoint.folder().string()),
                       fmt::format("Give {} nf4 to merge into these. To merge into the model as it was before, export "
                                   "the adapter, and merge it with {} and {}",
                                   option("base_dtype"), option("model"), option("init_adapter")));
    }
    if (as_computed && !config.quantization) {
      throw UsageError(option_place("base_dtype"),
                       fmt::format("the base of {} was not in 4 bits", checkpoint.folder().string()), "Remove it");
    }
    write_merged(session, settings, loaded, [&](const std::string& name, int64_t begin, int64_t end, const View& to) {
      as_computed ? source.read_as_computed(name, begin, end, to) : source.read_range_into(name, begin, end, to);
    });
  } else {
    const CheckpointReader reader(checkpoint, model, session.world(), session.pool());
    const ModelWriter writer(model, saved_model_options(settings, config, session.tokenizer(), loaded), session.world(),
                             session.pool());
    write_model(session, settings, model, writer, [&](Section section, int64_t unit, View values) {
      reader.read(parameters_of(section), unit, {0, values.num_elems()}, values);
    });
  }
  note_model(config, console);
  console.print(fmt::format("{}: the {} of step {}", settings.output_dir,
                            config.adapter && !settings.merge ? "adapter" : "model", checkpoint.step()));
  return static_cast<int>(ExitCode::kDone);
}

}  // namespace tessera
