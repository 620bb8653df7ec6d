#include "tessera/log/trackers/crc.h"

#include <array>

namespace tessera {
namespace {

// The table of a CRC: for each byte, the remainder after eight steps of the polynomial division. `polynomial` has its
// bits in reversed order: the lowest bit belongs to the highest power.
constexpr std::array<uint32_t, 256> remainders(uint32_t polynomial) {
  std::array<uint32_t, 256> table{};
  for (uint32_t byte = 0; byte < 256; ++byte) {
    uint32_t rest = byte;
    for (int bit = 0; bit < 8; ++bit) rest = (rest >> 1) ^ ((rest & 1) ? polynomial : 0);
    table[byte] = rest;
  }
  return table;
}

uint32_t crc_of(const std::array<uint32_t, 256>& table, std::string_view bytes, uint32_t before) {
  uint32_t rest = ~before;
  for (const char c : bytes) rest = (rest >> 8) ^ table[(rest ^ static_cast<uint8_t>(c)) & 0xFF];
  return ~rest;
}

}  // namespace

uint32_t crc32(std::string_view bytes, uint32_t before) {
  static constexpr auto kTable = remainders(0xEDB88320);
  return crc_of(kTable, bytes, before);
}

uint32_t crc32c(std::string_view bytes, uint32_t before) {
  static constexpr auto kTable = remainders(0x82F63B78);
  return crc_of(kTable, bytes, before);
}

}  // namespace tessera
