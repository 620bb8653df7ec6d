#include "tessera/model/model.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>

#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/model/adapter_config.h"

namespace tessera {

Model::Model(ModelConfig config, Device& device, const std::vector<std::string>& frozen)
    : config_(std::move(config)), architecture_(&architecture_of(config_)) {
  const Architecture& a = *architecture_;
  if (config_.tied_head) tolerated_names_ = {std::string(a.head.weight)};
  if (a.constants) {
    const std::vector<float> values = a.constants(config_);
    const auto size = static_cast<int64_t>(values.size());
    constants_memory_ = device.allocate(size * 4, Category::workspace);
    constants_ = constants_memory_.view({size}, DType::f32);
    device.copy_from_host(values.data(), constants_);
  }
  const Initializer init{Initializer::Kind::normal, a.unit_variance_embedding ? 1.0 : config_.initializer_range, 0};
  root_ = std::make_unique<Root>(config_, a.root, init, config_.tied_head ? &a.head : nullptr);
  for (int64_t i = 0; i < config_.num_layers; ++i) blocks_.push_back(a.make_block(config_, i, constants_));
  if (!config_.tied_head) head_ = std::make_unique<HeadUnit>(config_, a.head, init);
  if (config_.adapter) adapt(*config_.adapter);
  if (config_.quantization) quantize(*config_.quantization);
  if (frozen.empty()) return;
  const auto is_frozen = [&](const std::string& name) {
    return std::ranges::any_of(frozen, [&](const auto& pattern) { return matches(pattern, name); });
  };
  root_->freeze(is_frozen);
  for (const auto& block : blocks_) block->freeze(is_frozen);
  if (head_) head_->freeze(is_frozen);
}

bool Model::matches(const std::string& pattern, const std::string& name) const {
  return fnmatch(pattern.c_str(), name.c_str(), 0) == 0 || fnmatch(pattern.c_str(), file_name(name).c_str(), 0) == 0;
}

const Unit& Model::unit(int64_t u) const {
  if (u == 0) return *root_;
  return is_block(u) ? static_cast<const Unit&>(block(u - 1)) : *head_;
}

Unit& Model::mutable_unit(int64_t u) {
  return const_cast<Unit&>(unit(u));  // the units belong to this model
}

void Model::adapt(const AdapterOptions& options) {
  constexpr uint32_t kMaxLayers = 16;  // of a unit
  std::set<std::string> adapted;       // paths of layers
  for (int64_t u = 0; u < num_units(); ++u) {
    Unit& unit = mutable_unit(u);
    const std::vector<Linear*> layers = unit.linear_layers();
    TESSERA_ASSERT(layers.size() <= kMaxLayers);
    const Linear::AdapterOf adapter_of = [&](const std::string& layer) {
      const std::string path = file_name(layer);
      const auto adapter = adapter_of_layer(options, path, !is_block(u));
      if (adapter && adapted.insert(path).second) adapted_layers_.push_back(path);
      return adapter;
    };
    for (size_t i = 0; i < layers.size(); ++i) {
      const auto number = static_cast<uint32_t>(u) * kMaxLayers + static_cast<uint32_t>(i);
      layers[i]->adapt(unit.table_to_change(), adapter_of, options.dropout, number);
    }
  }
  check_names(options, adapted);
  for (int64_t u = 0; u < num_units(); ++u) {
    mutable_unit(u).freeze([&](const std::string& name) {
      const std::string path = file_name(name);
      return !is_adapter_tensor(name) && !trains_whole(options, path, adapted.contains(layer_of_tensor(path)));
    });
  }
}

void Model::quantize(const Quantization& quantization) {
  for (const auto& block : blocks_) {
    std::set<std::string> weights;
    for (const Linear* layer : block->linear_layers()) {
      for (const std::string& name : layer->weight_names()) {
        if (quantizes(quantization, layer_of_tensor(file_name(name)))) weights.insert(name);
      }
    }
    block->table_to_change().quantize([&](const ParameterSpec& spec) {
      const bool is_trained = config_.adapter && spec.trainable();  // a module that is trained whole
      return weights.contains(spec.name) && !is_trained;
    });
  }
}

// Throws UsageError if the options name a layer, a block or a module that the model does not have, or if they train
// only some of several tensors that are computed together.
void Model::check_names(const AdapterOptions& options, const std::set<std::string>& adapted) const {
  std::set<std::string> layers;  // the last words of the paths of linear layers
  std::vector<std::string> paths = {layer_of_tensor(architecture_->head.weight)};
  std::vector<std::string> tensors;
  for (int64_t u = 0; u < num_units(); ++u) {
    const ParameterSpec* before = nullptr;
    const auto trains = [&](const ParameterSpec& spec) {
      const std::string path = file_name(spec.name);
      return trains_whole(options, path, adapted.contains(layer_of_tensor(path)));
    };
    for (const ParameterSpec& spec : unit(u).table().specs()) {
      if (is_adapter_tensor(spec.name)) continue;
      const std::string path = file_name(spec.name), layer = layer_of_tensor(path);
      tensors.push_back(path);
      if (is_block(u) && spec.shape.rank() == 2) {
        layers.insert(layer.substr(layer.rfind('.') + 1));
        paths.push_back(layer);
      }
      if (adapted.contains(layer) && !path.ends_with("bias") && trains(spec)) {
        throw UsageError(option_place("modules_to_save"),
                         fmt::format("{} would be trained whole, and also have an adapter", layer),
                         "Give its name to " + option("lora_exclude_modules") + " too");
      }
      if (spec.joined && trains(spec) != trains(*before)) {
        throw UsageError(
            option_place(path.ends_with("bias") ? "lora_bias" : "modules_to_save"),
            fmt::format("trains only one of {} and {}, which are computed together", file_name(before->name), path),
            "Name both layers, or neither of them");
      }
      before = &spec;
    }
  }
  const std::string known = fmt::format("The linear layers of this model are {} and lm_head", joined(layers, ", "));
  const auto must_match = [&](const char* option, const std::string& expression) {
    const auto is_meant = [&](const std::string& path) { return matches_path(expression, path, option); };
    if (std::ranges::any_of(paths, is_meant)) return;
    throw UsageError(option_place(option), fmt::format("\"{}\" names no linear layer", printable(expression)), known);
  };
  for (const int64_t layer : options.layers) {
    if (layer >= 0 && layer < num_blocks()) continue;
    throw UsageError(option_place("lora_layers"),
                     fmt::format("{} is no block of the model, which has blocks 0 to {}", layer, num_blocks() - 1));
  }
  for (const std::string& target : options.targets) must_match("lora_target_modules", target);
  if (adapted.empty()) {
    throw UsageError(option_place(options.excluded.empty() ? "lora_layers" : "lora_exclude_modules"),
                     "leaves no layer that gets an adapter", known);
  }
  for (const auto& [expression, rank] : options.ranks) must_match("lora_rank_pattern", expression);
  for (const auto& [expression, alpha] : options.alphas) must_match("lora_alpha_pattern", expression);
  for (const std::string& end : options.whole) {
    AdapterOptions only;
    only.whole = {end};
    if (config_.tied_head && trains_whole(only, file_name(embedding_name()), false)) {
      throw UsageError(
          option_place("modules_to_save"),
          fmt::format("the embedding ({}) is also the head of this model, and PEFT would train a copy that "
                      "the head does not use",
                      printable(end)),
          fmt::format("Train the model without an adapter. {} can keep its other tensors unchanged", option("freeze")));
    }
    if (std::ranges::any_of(tensors, [&](const std::string& path) { return trains_whole(only, path, false); }))
      continue;
    throw UsageError(option_place("modules_to_save"),
                     fmt::format("\"{}\" names no module of the model", printable(end)),
                     "Use the end of a path in the model's files, such as embed_tokens, or lm_head if it is not tied");
  }
}

std::string Model::file_name(const std::string& name) const {
  return name == "lm_head" || name.starts_with("lm_head.") ? name : architecture_->file_prefix + name;
}

std::string Model::adapter_file_name(const std::string& name) const {
  const std::string path = file_name(name), layer = layer_of_tensor(path);
  const bool wrapped = path.ends_with(".bias") && std::ranges::find(adapted_layers_, layer) != adapted_layers_.end();
  return std::string(kAdapterPrefix) + (wrapped ? layer + ".base_layer.bias" : path);
}

void Model::check_float8() const {
  for (const auto& block : blocks_) {
    for (const Linear* layer : block->linear_layers()) layer->check_float8(block->table());
  }
}

std::vector<std::pair<Section, Float8Place>> Model::float8_places(int64_t block) const {
  std::vector<std::pair<Section, Float8Place>> places;
  Block& of = *blocks_[static_cast<size_t>(block)];
  for (const Linear* layer : of.linear_layers()) {
    if (const auto place = layer->place8(of.table())) places.push_back(*place);
  }
  return places;
}

void Model::begin(Frame& f) const {
  if (architecture_->begin && f.batch.num_tokens > 0) architecture_->begin(config_, constants_, f);
}

int64_t Model::num_parameters() const {
  int64_t n = 0;
  for (int64_t u = 0; u < num_units(); ++u) n += unit(u).table().num_parameters();
  return n;
}

int64_t Model::num_trainable_parameters() const {
  int64_t n = 0;
  for (int64_t u = 0; u < num_units(); ++u) n += unit(u).table().num_trainable_parameters();
  return n;
}

int64_t Model::first_trained() const {
  if (root_->embedding_trains()) return 0;
  int64_t u = 1;
  while (u <= num_blocks() && unit(u).table().num_elems(Section::trainable) == 0) ++u;
  return u;
}

}  // namespace tessera
