// The checksums in the files of trackers: CRC-32 in W&B's log, CRC-32C in TensorBoard's event files.
#pragma once

#include <cstdint>
#include <string_view>

namespace tessera {

// CRC-32 of IEEE 802.3, as in zlib. `before` is the checksum of the data that precedes `bytes`.
uint32_t crc32(std::string_view bytes, uint32_t before = 0);
// CRC-32C (Castagnoli). `before`: see crc32().
uint32_t crc32c(std::string_view bytes, uint32_t before = 0);

}  // namespace tessera
