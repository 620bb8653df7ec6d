#include "tessera/data/samples.h"

#include <algorithm>
#include <numeric>
#include <utility>

#include "tessera/base/error.h"

namespace tessera {

int64_t num_targets_of(const Sample& sample) {
  return std::ssize(sample.labels) - std::count(sample.labels.begin(), sample.labels.end(), kNoTarget);
}

void SampleIndex::add(const Sample& sample) {
  TESSERA_ASSERT(sample.labels.size() == sample.ids.size());
  starts.push_back(starts.back() + std::ssize(sample.ids));
  num_targets.push_back(static_cast<int32_t>(num_targets_of(sample)));
}

void MemoryTokens::add(const Sample& sample) {
  ids_.insert(ids_.end(), sample.ids.begin(), sample.ids.end());
  labels_.insert(labels_.end(), sample.labels.begin(), sample.labels.end());
}

void MemoryTokens::read(size_t /*sample*/, int64_t begin, std::span<int32_t> ids, std::span<int32_t> labels) const {
  std::copy_n(ids_.begin() + begin, ids.size(), ids.begin());
  std::copy_n(labels_.begin() + begin, labels.size(), labels.begin());
}

Samples::Samples(const std::vector<Sample>& samples) {
  auto index = std::make_shared<SampleIndex>();
  auto tokens = std::make_shared<MemoryTokens>();
  for (const Sample& sample : samples) {
    index->add(sample);
    tokens->add(sample);
  }
  index_ = std::move(index);
  tokens_ = std::move(tokens);
  order_.resize(samples.size());
  std::iota(order_.begin(), order_.end(), 0);
}

Samples::Samples(std::shared_ptr<const SampleIndex> index, std::shared_ptr<const TokenStore> tokens,
                 std::vector<int64_t> order)
    : index_(std::move(index)), tokens_(std::move(tokens)), order_(std::move(order)) {}

int64_t Samples::length(int64_t i) const {
  const size_t s = stored(i);
  return index_->starts[s + 1] - index_->starts[s];
}

Sample Samples::operator[](int64_t i) const {
  Sample sample;
  append(i, sample.ids, sample.labels);
  return sample;
}

void Samples::append(int64_t i, std::vector<int32_t>& ids, std::vector<int32_t>& labels) const {
  const auto length = static_cast<size_t>(this->length(i));
  ids.resize(ids.size() + length);
  labels.resize(labels.size() + length);
  tokens_->read(stored(i), index_->starts[stored(i)], std::span(ids).last(length), std::span(labels).last(length));
}

}  // namespace tessera
