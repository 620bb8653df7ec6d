#include "tessera/train/export_model.h"

#include <fmt/format.h>

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
#include "tessera/train/gguf_export.h"
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

bool writes_gguf(const Settings& settings) {
  return settings.gguf != Settings::Gguf::none;
}

// Throws UsageError if the export would replace something that must stay. The name of a GGUF file may depend on the
// model, so this is not its only check.
void check_target_stays(const Settings& settings) {
  if (!writes_gguf(settings)) {
    check_model_stays(settings);
    check_replaceable(settings.output_dir, why_no_saved_model);
  } else if (settings.gguf != Settings::Gguf::automatic) {
    check_gguf_target(settings, gguf_path_of(settings, gguf_type_of(settings)));
  }
}

// Writes the elements of a section as f32 to `values`. `saved_type` gives the type of a tensor in the result.
using ReadSection = std::function<void(Section section, int64_t unit, const MergedModel::SavedType& saved_type, View)>;

// Reads one section at a time.
void for_each_section(Session& session, const Model& model, const std::function<bool(Section)>& wanted,
                      const std::function<void(Section, int64_t, View)>& visit) {
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const Section section : kSections) {
      const int64_t elems = model.unit(u).table().num_elems(section);
      if (elems == 0 || !wanted(section)) continue;
      const Buffer buffer =
          session.worker().host().allocate(elems * static_cast<int64_t>(sizeof(float)), Category::staging);
      visit(section, u, buffer.view({elems}, DType::f32));
    }
  }
}

// Writes a model as the settings say. Returns the path of the result.
fs::path write_model(Session& session, const Settings& settings, const Model& model, const LoadedTypes& loaded,
                     const ReadSection& read) {
  if (writes_gguf(settings)) {
    const GgufType type = gguf_type_of(settings, model, loaded);
    // The rounding to blocks is no rounding to a type of our own, so it counts as none.
    const DType saved = type == GgufType::f16 ? DType::f16 : type == GgufType::bf16 ? DType::bf16 : DType::f32;
    return write_gguf(session, settings, model, loaded, [&](const GgufModel::Write& write) {
      for_each_section(
          session, model, [](Section) { return true; },
          [&](Section section, int64_t unit, View values) {
            read(
                section, unit, [&](const std::string&) { return saved; }, values);
            write(section, unit, values);
          });
    });
  }
  const ModelWriter writer(model, saved_model_options(settings, model.config(), session.tokenizer(), loaded),
                           session.world(), session.pool());
  writer.write(settings.output_dir, [&](const ModelWriter::Write& write) {
    for_each_section(
        session, model, [&](Section section) { return writer.has(section); },
        [&](Section section, int64_t unit, View values) {
          read(
              section, unit, [&](const std::string& name) { return writer.saved_type(name); }, values);
          write(section, unit, {0, values.num_elems()}, values);
        });
  });
  return settings.output_dir;
}

// Writes the model with its adapter added to its weights.
fs::path write_merged(Session& session, const Settings& settings, const LoadedTypes& loaded, const ReadTensor& read) {
  Device& device = session.worker().device();
  ModelConfig plain_config = session.config();
  plain_config.adapter.reset();
  plain_config.quantization.reset();
  const Model adapted(session.config(), device), plain(plain_config, device);
  MergedModel merged(adapted, plain, read, session.pool());
  fs::path result = write_model(session, settings, plain, loaded,
                                [&](Section section, int64_t unit, const MergedModel::SavedType& saved_type,
                                    View values) { merged.read(section, unit, saved_type, values); });
  if (settings.gguf == Settings::Gguf::q8_0) return result;
  const RoundingLoss& loss = merged.loss();
  session.console().note(
      loss.tensor.empty()
          ? "Merged without a rounding error"
          : fmt::format(
                "Merged in fp32 and rounded once. The largest rounding error is {:.3g}, in {}, where the adapter "
                "changes elements by up to {:.3g}",
                loss.lost, plain.file_name(loss.tensor), loss.change));
  return result;
}

Exported merge_adapter(const Settings& settings, Console& console) {
  if (!settings.merge) {
    throw UsageError(option_place("init_adapter"), "an adapter can only be exported into its model", "Add --merge");
  }
  if (!settings.checkpoint.empty()) {
    throw UsageError(option_place("checkpoint"), "contradicts the adapter: a checkpoint of its run has it",
                     "Give only one of the two");
  }
  check_target_stays(settings);
  Session session(settings, nullptr, console, Session::Weights::not_yet);
  session.read_model();
  const Model model(session.config(), session.worker().device());
  const ReadTensor read =
      reader_of_adapted(model, folder_of_model(settings), adapter_folder_of(settings), session.pool());
  fs::path result = write_merged(session, settings, loaded_types_of(model, settings, session.world()), read);
  return {std::move(result), fmt::format("{} with the adapter {}", settings.model, settings.init_adapter.front())};
}

// Makes a GGUF file from a model folder.
Exported convert_model(const Settings& settings, Console& console) {
  if (settings.init == Settings::Init::random || names_a_shape(settings)) {
    throw UsageError(option_place("model"), "a model without weights cannot be exported",
                     "Give a model folder, a run or a checkpoint");
  }
  if (settings.merge) throw UsageError(option_place("merge"), "the model has no adapter", "Remove it");
  if (settings.base_dtype != Settings::BaseDtype::automatic) {
    throw UsageError(option_place("base_dtype"), "does nothing without " + option("merge"), "Remove it");
  }
  check_place_of_model(settings);
  check_target_stays(settings);
  Session session(settings, nullptr, console, Session::Weights::not_yet);
  session.read_model();
  ModelConfig config = session.config();
  config.quantization.reset();  // the file gets the values of weights in 4 bits
  const Model model(config, session.worker().device());
  const ReadTensor read = reader_of_model(model, folder_of_model(settings), session.pool());
  fs::path result =
      write_model(session, settings, model, loaded_types_of(model, settings, session.world()),
                  [&](Section section, int64_t unit, const MergedModel::SavedType&, View values) {
                    const ParameterTable& table = model.unit(unit).table();
                    table.for_each_tensor(section, 0, table.num_elems(section),
                                          [&](const ParameterSpec& spec, int64_t, int64_t end) {
                                            read(spec.name, 0, end, values.rows(spec.offset, spec.offset + end));
                                          });
                  });
  note_model(config, console);
  return {std::move(result), settings.model};
}

}  // namespace

Exported export_model(Settings settings, Console& console) {
  if (!settings.init_adapter.empty()) return merge_adapter(settings, console);
  if (writes_gguf(settings) && settings.checkpoint.empty() && !is_checkpoint(folder_of_model(settings))) {
    return convert_model(settings, console);
  }
  settle_checkpoint(settings);
  check_target_stays(settings);  // before the checkpoint is read, which may take long
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
  if (writes_gguf(settings) && config.adapter && !settings.merge) {
    throw UsageError(
        option_place("gguf"),
        fmt::format("{} has an adapter, but a GGUF file has a complete model", checkpoint.folder().string()),
        fmt::format("Add {} to add the adapter to its model", option("merge")));
  }
  // from_json() throws if the checkpoint belongs to another model. Without this check, the export would accept such a
  // checkpoint if its arrays have the names and sizes that this model needs.
  const TrainState state = TrainState::from_json(checkpoint.trainer_state(), model_fingerprint(config), where);
  const Model model(config, session.worker().device(), frozen_in(fingerprint));
  const LoadedTypes loaded =
      state.loaded_types ? *state.loaded_types : loaded_types_of(model, settings, session.world());
  fs::path result;
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
    result = write_merged(
        session, settings, loaded, [&](const std::string& name, int64_t begin, int64_t end, const View& to) {
          as_computed ? source.read_as_computed(name, begin, end, to) : source.read_range_into(name, begin, end, to);
        });
  } else {
    const CheckpointReader reader(checkpoint, model, session.world(), session.pool());
    result = write_model(session, settings, model, loaded,
                         [&](Section section, int64_t unit, const MergedModel::SavedType&, View values) {
                           reader.read(parameters_of(section), unit, {0, values.num_elems()}, values);
                         });
  }
  note_model(config, console);
  return {std::move(result),
          fmt::format("the {} of step {}", config.adapter && !settings.merge ? "adapter" : "model", checkpoint.step())};
}

}  // namespace tessera
