#include "tessera/load/checkpoint_weights.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <utility>

#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/load/adapter_files.h"
#include "tessera/store/engine_checkpoint.h"
#include "tessera/store/manifest.h"

namespace tessera {

namespace fs = std::filesystem;

bool is_checkpoint(const fs::path& folder) {
  std::error_code ignored;  // an unreadable folder is reported when it is used
  return fs::exists(folder / kManifestName, ignored) && fs::exists(folder / "trainer_state.json", ignored);
}

std::vector<std::string> frozen_in(const Record& fingerprint) {
  const auto found = fingerprint.find("freeze");
  if (found == fingerprint.end() || !found->is_string()) return {};
  return split_list(found->get<std::string>());
}

std::optional<Quantization> quantization_in_checkpoint(const fs::path& checkpoint) {
  std::error_code ignored;  // an unreadable folder is reported when it is used
  if (!fs::exists(checkpoint / "config.json", ignored)) return std::nullopt;  // of an early version
  return read_model_config(checkpoint / "config.json").quantization;
}

LoadedTypes loaded_types_in(const fs::path& checkpoint) {
  const fs::path path = checkpoint / "trainer_state.json";
  const Record state = record_from_json(read_file(path, {}), path.string());
  LoadedTypes types;
  const Record words = state.value("loaded_types", Record::object());
  for (const auto& entry : words.items()) {
    const auto is_named = [&](DType dtype) { return entry.value() == Record(name_of(dtype)); };
    const auto known = std::ranges::find_if(kSavedTypes, is_named);
    if (known != kSavedTypes.end()) types[entry.key()] = *known;
  }
  return types;
}

namespace {

// The model of the checkpoint's run. The patterns of --freeze decide where a tensor is in the arrays of its unit.
Model model_in(const Checkpoint& checkpoint, Device& device) {
  ModelConfig config = read_model_config(checkpoint.folder() / "config.json");
  config.adapter = adapter_in_checkpoint(checkpoint.folder());
  const std::string where = (checkpoint.folder() / "trainer_state.json").string();
  const Record state = record_from_json(checkpoint.trainer_state(), where);
  return {std::move(config), device, frozen_in(state.value("fingerprint", Record::object()))};
}

}  // namespace

CheckpointWeights::CheckpointWeights(const fs::path& folder, Communicator& world, ThreadPool& pool)
    : checkpoint_(Checkpoint::open_verified(folder, world, &pool)),
      device_(make_counting_device()),
      model_(model_in(checkpoint_, *device_)),
      reader_(checkpoint_, model_, world, pool) {
  for (int64_t u = 0; u < model_.num_units(); ++u) {
    for (const ParameterSpec& spec : model_.unit(u).table().specs()) places_[spec.name] = {u, &spec};
  }
}

void CheckpointWeights::check(const std::string& name, const Shape& shape) const {
  const auto place = places_.find(name);
  if (place != places_.end() && place->second.spec->shape == shape) return;
  throw InputError(checkpoint_.folder(),
                   place == places_.end() ? fmt::format("has no tensor \"{}\"", name)
                                          : fmt::format("tensor \"{}\" is {} instead of {}", name,
                                                        place->second.spec->shape.to_string(), shape.to_string()),
                   "Use the config.json of the checkpoint");
}

void CheckpointWeights::read_range_into(const std::string& name, int64_t elem_begin, int64_t elem_end,
                                        const View& target) const {
  const auto& [unit, spec] = places_.at(name);
  if (spec->quantized()) return reader_.read_weights(*spec, unit, elem_begin, elem_end, target);
  reader_.read(parameters_of(spec->section), unit, {spec->offset + elem_begin, spec->offset + elem_end}, target);
}

void CheckpointWeights::read_as_computed(const std::string& name, int64_t elem_begin, int64_t elem_end,
                                         const View& target) const {
  const auto& [unit, spec] = places_.at(name);
  if (!spec->quantized()) return read_range_into(name, elem_begin, elem_end, target);
  reader_.read_dequantized(*spec, unit, elem_begin, elem_end, target);
}

bool CheckpointWeights::has_weights_before_quantization() const {
  return std::ranges::all_of(places_, [&](const auto& place) {
    const auto& [unit, spec] = place.second;
    return !spec->quantized() || checkpoint_.array(array_name(StateKind::quantized, model_.unit(unit))).is_referenced;
  });
}

bool CheckpointWeights::read_groups(const std::string& name, int64_t first, int64_t last, Nf4Group* groups) const {
  const auto& [unit, spec] = places_.at(name);
  if (!spec->quantized()) return false;
  reader_.read(StateKind::quantized, unit, {spec->offset + first, spec->offset + last},
               {reinterpret_cast<std::byte*>(groups), DType::nf4, {last - first}});
  return true;
}

}  // namespace tessera
