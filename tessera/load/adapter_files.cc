#include "tessera/load/adapter_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/load/checkpoint_weights.h"
#include "tessera/load/model_place.h"
#include "tessera/model/adapter_config.h"
#include "tessera/settings/adapter_options.h"
#include "tessera/store/checksum.h"
#include "tessera/store/model_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kMaxConfigBytes = 16 << 20;

bool exists_at(const fs::path& path) {
  std::error_code ignored;  // an unreadable path is reported when it is used
  return fs::exists(path, ignored);
}

AdapterOptions options_in(const fs::path& folder) {
  const fs::path path = folder / kAdapterConfig;
  return parse_adapter_config(read_file(path, {.longest_bytes = kMaxConfigBytes}), path.string());
}

}  // namespace

fs::path adapter_folder_of(const Settings& settings) {
  const fs::path path = settings.init_adapter.front();
  const fs::path folder =
      !exists_at(path / kAdapterConfig) && exists_at(path / "model" / kAdapterConfig) ? path / "model" : path;
  if (!exists_at(folder / kAdapterConfig)) {
    const bool is_model = exists_at(folder / "config.json");
    throw InputError(path,
                     !exists_at(path) ? "no such folder"
                     : is_model       ? "is a model, and not an adapter: it has no adapter_config.json"
                                      : "is no adapter: it has no adapter_config.json",
                     "Give a folder that PEFT or a training run with --adapter lora has saved");
  }
  if (!exists_at(folder / kAdapterWeights)) {
    throw InputError(
        folder,
        exists_at(folder / "adapter_model.bin")
            ? "has its weights only as adapter_model.bin, a pickle file, which can run any code when it is read"
            : "has no adapter_model.safetensors",
        "Load the adapter with PEFT, and save it with save_pretrained('FOLDER')");
  }
  return folder;
}

std::optional<AdapterOptions> adapter_in_checkpoint(const fs::path& checkpoint) {
  if (!exists_at(checkpoint / kAdapterConfig)) return std::nullopt;
  return options_in(checkpoint);
}

std::optional<AdapterOptions> adapter_of(const Settings& settings) {
  std::optional<AdapterOptions> from_model;
  if (!settings.model.empty() && !names_a_shape(settings)) {
    const fs::path folder = folder_of_model(settings);
    if (is_checkpoint(folder)) from_model = adapter_in_checkpoint(folder);
  }
  if (from_model && !settings.init_adapter.empty()) {
    throw UsageError(option_place("init_adapter"),
                     fmt::format("the model {} is a checkpoint that already has an adapter", printable(settings.model)),
                     "Give the model of the checkpoint's run as --model");
  }
  if (!settings.init_adapter.empty()) {
    AdapterOptions options = options_in(adapter_folder_of(settings));
    if (settings.lora_dropout > 0) options.dropout = settings.lora_dropout;
    return options;
  }
  if (from_model && settings.adapter == Settings::Adapter::lora) {
    throw UsageError(option_place("model"),
                     fmt::format("{} is a checkpoint with an adapter", printable(settings.model)),
                     "Export its adapter with tessera export, and give it with the model of its run");
  }
  return from_model ? from_model : adapter_options(settings);
}

AdapterFile::AdapterFile(const fs::path& folder, const Model& model) : model_(model), file_(folder / kAdapterWeights) {
  std::vector<std::string> missing, misshapen, extra;
  std::set<std::string> expected;
  for (int64_t u = 0; u < model.num_units(); ++u) {
    for (const ParameterSpec& spec : model.unit(u).table().specs()) {
      if (!spec.trainable()) continue;
      const std::string name = model.adapter_file_name(spec.name);
      expected.insert(name);
      const TensorInfo* info = file_.find(name);
      if (!info) {
        missing.push_back(name);
      } else if (info->dims.size() > 4 || info->shape() != spec.shape) {
        misshapen.push_back(fmt::format("{} (expected {})", name, spec.shape.to_string()));
      }
    }
  }
  // With the head as a target, PEFT also saves the weight of the base beside the adapter.
  for (const std::string& layer : model.adapted_layers()) {
    const std::string name = std::string(kAdapterPrefix) + layer + ".base_layer.weight";
    const TensorInfo* info = file_.find(name);
    const std::vector<int64_t> dims{model.config().vocab_size, model.config().hidden_size};
    if (info && info->dims == dims) expected.insert(name);
  }
  for (const TensorInfo& info : file_.tensors()) {
    if (!expected.contains(info.name)) extra.push_back(info.name);
  }
  std::string what = tensor_problem("missing", missing) + tensor_problem("of another shape", misshapen) +
                     tensor_problem("not of this adapter", extra);
  if (what.empty()) return;
  what.resize(what.size() - 2);
  throw InputError(file_.path(), what,
                   "Give the base model of the adapter as --model, and the adapter's own adapter_config.json");
}

std::string AdapterFile::checksum() const {
  Checksum sum;
  for (const TensorInfo& info : file_.tensors()) {
    sum.update(info.name.data(), info.name.size());
    sum.update(file_.data(info), info.end - info.begin);
  }
  return checksum_text(sum.value());
}

void check_adapter_file(const Settings& settings, const ModelConfig& config) {
  const auto device = make_counting_device();
  const Model model(config, *device);
  const AdapterFile file(adapter_folder_of(settings), model);
}

void AdapterFile::read_range_into(const std::string& name, int64_t elem_begin, int64_t elem_end,
                                  const View& target) const {
  file_.read_range_into(file_.get(model_.adapter_file_name(name)), elem_begin, elem_end, target);
}

}  // namespace tessera
