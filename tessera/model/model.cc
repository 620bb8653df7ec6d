#include "tessera/model/model.h"

#include <fnmatch.h>

#include <algorithm>

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

std::string Model::file_name(const std::string& name) const {
  return name.starts_with("lm_head.") ? name : architecture_->file_prefix + name;
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
