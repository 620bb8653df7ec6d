#include "tessera/session/fingerprint.h"

#include <nlohmann/json.hpp>

#include "tessera/comm/world.h"
#include "tessera/store/checksum.h"

namespace tessera {

std::string checksum_of(const Samples& samples) {
  Checksum data;
  if (samples.has_checksums()) {
    for (int64_t i = 0; i < samples.size(); ++i) {
      const auto checksum = samples.checksum(i);
      data.update(&checksum, sizeof checksum);
    }
    return "cached " + checksum_text(data.value());
  }
  for (int64_t i = 0; i < samples.size(); ++i) {
    const Sample sample = samples[i];
    const auto size = static_cast<int64_t>(sample.ids.size());
    data.update(&size, sizeof size);
    data.update(sample.ids.data(), sample.ids.size() * sizeof(int32_t));
    data.update(sample.labels.data(), sample.labels.size() * sizeof(int32_t));
  }
  return checksum_text(data.value());
}

void check_ranks_agree(Communicator& world, const Record& fingerprint) {
  std::vector<std::pair<std::string, std::string>> facts;
  for (const auto& [key, value] : fingerprint.items()) {
    std::string text = to_json(value);
    if (value.is_structured()) {  // too long for an error
      Checksum checksum;
      checksum.update(text.data(), text.size());
      text = "a list with the checksum " + checksum_text(checksum.value());
    }
    facts.emplace_back(key, text);
  }
  check_agreement(world, facts);
}

}  // namespace tessera
