// The samples of a data set. Their tokens are in memory or in a file.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <vector>

#include "tessera/data/prompts.h"

namespace tessera {

// The tokens of samples that are stored one after the other.
class TokenStore {
 public:
  virtual ~TokenStore() = default;
  // Reads the ids and the labels of the stored sample with this number, which begins at token `begin` of all tokens.
  // Both spans have the length of the sample. Throws InputError or RunError if a file cannot be read. Only one thread
  // at a time may call it.
  virtual void read(size_t sample, int64_t begin, std::span<int32_t> ids, std::span<int32_t> labels) const = 0;
};

// Tokens in memory. One array for all samples needs less memory than arrays of each sample.
class MemoryTokens : public TokenStore {
 public:
  void add(const Sample& sample);
  void read(size_t sample, int64_t begin, std::span<int32_t> ids, std::span<int32_t> labels) const override;

 private:
  std::vector<int32_t> ids_, labels_;
};

// What is known about stored samples without reading their tokens.
struct SampleIndex {
  std::vector<int64_t> starts{0};      // [stored + 1]: sample i has tokens [starts[i], starts[i + 1])
  std::vector<int32_t> num_targets{};  // [stored] labels that are not kNoTarget
  std::vector<uint64_t> checksums{};   // [stored] of the tokens; empty unless the tokens are in a file

  int64_t size() const { return std::ssize(num_targets); }
  void add(const Sample& sample);  // without a checksum
};

// Samples in the order of the data set. Copies share the tokens.
class Samples {
 public:
  Samples() = default;
  // In memory.
  Samples(const std::vector<Sample>& samples);  // NOLINT: implicit, because a list of samples is a data set
  Samples(std::initializer_list<Sample> samples) : Samples(std::vector<Sample>(samples)) {}
  // Sample i of the data set is the stored sample order[i]. A stored sample may occur several times, or not at all.
  Samples(std::shared_ptr<const SampleIndex> index, std::shared_ptr<const TokenStore> tokens,
          std::vector<int64_t> order);

  int64_t size() const { return std::ssize(order_); }
  int64_t length(int64_t i) const;  // tokens
  int64_t num_targets(int64_t i) const { return index_->num_targets[stored(i)]; }
  // A checksum of the sample's tokens, and whether all samples have one.
  bool has_checksums() const { return index_ && !index_->checksums.empty(); }
  uint64_t checksum(int64_t i) const { return index_->checksums[stored(i)]; }
  Sample operator[](int64_t i) const;  // reads the tokens
  // Appends the tokens of sample i.
  void append(int64_t i, std::vector<int32_t>& ids, std::vector<int32_t>& labels) const;

 private:
  size_t stored(int64_t i) const { return static_cast<size_t>(order_[static_cast<size_t>(i)]); }

  std::shared_ptr<const SampleIndex> index_;
  std::shared_ptr<const TokenStore> tokens_;
  std::vector<int64_t> order_;
};

int64_t num_targets_of(const Sample& sample);

}  // namespace tessera
