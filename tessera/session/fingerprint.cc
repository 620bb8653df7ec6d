#include "tessera/session/fingerprint.h"

#include <nlohmann/json.hpp>

#include "tessera/comm/world.h"
#include "tessera/store/checksum.h"

namespace tessera {

std::string checksum_of(const std::vector<Sample>& samples) {
  Checksum data;
  for (const Sample& sample : samples) {
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
