// A model: the units of an architecture (architecture.h).
#pragma once

#include <memory>
#include <set>
#include <utility>
#include <vector>

#include "tessera/model/architecture.h"
#include "tessera/model/root.h"

namespace tessera {

class Model {
 public:
  // Keeps small constants (ALiBi's slopes, rotary frequencies) on the device. The device must outlive the model.
  // `frozen`: shell patterns (* ? [...]) for the names of tensors that training does not change (see matches()).
  // Weights that config.quantization quantizes cannot be trained. Throws UsageError if config.adapter names a layer, a
  // block or a module that the model does not have.
  Model(ModelConfig config, Device& device, const std::vector<std::string>& frozen = {});

  const ModelConfig& config() const { return config_; }
  const Root& root() const { return *root_; }
  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  const Block& block(int64_t i) const { return *blocks_[static_cast<size_t>(i)]; }
  const Head& head() const { return head_ ? head_->head() : *root_->tied_head(); }

  // Units in forward order: unit 0 is the root, unit 1 + i is block i. An untied head is the last unit.
  int64_t num_units() const { return 1 + num_blocks() + (head_ ? 1 : 0); }
  const Unit& unit(int64_t u) const;
  int64_t head_unit() const { return head_ ? 1 + num_blocks() : 0; }  // the unit with the head's tensors
  bool is_block(int64_t u) const { return u > 0 && u <= num_blocks(); }
  // Calls visit(spec) for each tensor, unit by unit.
  template <typename Visit>
  void for_each_tensor(Visit&& visit) const {
    for (int64_t u = 0; u < num_units(); ++u) {
      for (const ParameterSpec& spec : unit(u).table().specs()) visit(spec);
    }
  }
  int64_t num_parameters() const;
  int64_t num_trainable_parameters() const;
  // The position in forward where backward ends: the first position that uses a trainable tensor. 0: the embedding, 1
  // to L: a block, L + 1: the head. A tied head is at L + 1 too, although its tensors are in unit 0.
  int64_t first_trained() const;

  // Throws UsageError if a block has a linear layer whose sizes products in 8 bits do not support.
  void check_float8() const;
  // The weights of a block that products in 8 bits read, with their sections. Not those with a quantized part.
  std::vector<std::pair<Section, Float8Place>> float8_places(int64_t block) const;

  // Computes what all blocks need for a batch: the rotary angles of its tokens. They stay on the stack.
  void begin(Frame& frame) const;

  // Converts the name of a tensor in a table to its name in files of this architecture. For most tensors, it adds a
  // prefix such as "model.". Files that Tessera reads may lack this prefix.
  std::string file_name(const std::string& name) const;
  // The name of a trained tensor in an adapter's file, as PEFT writes it.
  std::string adapter_file_name(const std::string& name) const;
  // The paths of the layers that have an adapter, such as "model.layers.0.mlp.up_proj", in the order of the units.
  const std::vector<std::string>& adapted_layers() const { return adapted_layers_; }
  // Whether a pattern of frozen tensors matches the tensor `name` of a table, or its name in files.
  bool matches(const std::string& pattern, const std::string& name) const;
  // Names that files may contain although the model has no such tensor. A tied head is the embedding, and a file may
  // contain it again under these names, with the same values.
  const std::vector<std::string>& tolerated_names() const { return tolerated_names_; }
  std::string embedding_name() const { return std::string(architecture_->root.embedding); }

 private:
  void adapt(const AdapterOptions& options);
  void quantize(const Quantization& quantization);
  void check_names(const AdapterOptions& options, const std::set<std::string>& adapted) const;
  Unit& mutable_unit(int64_t u);

  ModelConfig config_;
  const Architecture* architecture_;
  Buffer constants_memory_;
  View constants_;  // f32
  std::unique_ptr<Root> root_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::unique_ptr<HeadUnit> head_;  // null if the head is tied
  std::vector<std::string> tolerated_names_, adapted_layers_;
};

}  // namespace tessera
