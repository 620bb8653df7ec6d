#include "tessera/store/checksum.h"

#include <fmt/format.h>
#define XXH_STATIC_LINKING_ONLY  // xxhash.h then defines XXH3_state_t, which State needs
#include <xxhash.h>

namespace tessera {

struct Checksum::State {
  XXH3_state_t xxh3;
};

Checksum::Checksum() : state_(std::make_unique<State>()) {
  XXH3_64bits_reset(&state_->xxh3);
}
Checksum::~Checksum() = default;
Checksum::Checksum(Checksum&&) noexcept = default;
Checksum& Checksum::operator=(Checksum&&) noexcept = default;

void Checksum::update(const void* data, size_t bytes) {
  XXH3_64bits_update(&state_->xxh3, data, bytes);
}
uint64_t Checksum::value() const {
  return XXH3_64bits_digest(&state_->xxh3);
}

uint64_t checksum_of(const void* data, size_t bytes) {
  return XXH3_64bits(data, bytes);
}
std::string checksum_text(uint64_t checksum) {
  return fmt::format("{:016x}", checksum);
}

}  // namespace tessera
