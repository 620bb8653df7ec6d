// A model: the units of an architecture. A new architecture needs a file in this room and a row in model.cc's table.
#pragma once

#include <memory>
#include <vector>

#include "tessera/model/config.h"
#include "tessera/model/root.h"

namespace tessera {

class Model {
 public:
  // Keeps small constants (ALiBi's slopes, rotary frequencies) on the device. The device must outlive it.
  Model(ModelConfig config, Device& device);

  const ModelConfig& config() const { return config_; }
  const Root& root() const { return *root_; }
  int64_t num_blocks() const { return static_cast<int64_t>(blocks_.size()); }
  const Block& block(int64_t i) const { return *blocks_[static_cast<size_t>(i)]; }

  // Units in forward order: unit 0 is the root, unit 1 + i is block i.
  int64_t num_units() const { return 1 + num_blocks(); }
  const Unit& unit(int64_t u) const { return u == 0 ? static_cast<const Unit&>(root()) : block(u - 1); }
  int64_t num_parameters() const;

  // Sets what all blocks need of a batch: the rotary angles of its tokens, which stay on the stack.
  void begin(Frame& frame) const;

  // The prefix of the table's names in files of this architecture. Readers also accept names without it.
  const std::string& file_prefix() const { return file_prefix_; }
  // Names that files may contain although the model has no such tensor. The head is the embedding, and a file may
  // contain it again under these names, with the same values.
  const std::vector<std::string>& tolerated_names() const { return tolerated_names_; }
  const std::string& embedding_name() const { return embedding_name_; }

 private:
  ModelConfig config_;
  Buffer constants_memory_;
  View constants_;  // f32
  std::unique_ptr<Root> root_;
  std::vector<std::unique_ptr<Block>> blocks_;
  std::string file_prefix_, embedding_name_;
  std::vector<std::string> tolerated_names_;
};

}  // namespace tessera
