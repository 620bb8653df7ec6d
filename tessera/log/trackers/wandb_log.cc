#include "tessera/log/trackers/wandb_log.h"

#include <algorithm>

#include "tessera/log/trackers/crc.h"
#include "tessera/log/trackers/protobuf.h"

namespace tessera {
namespace {

constexpr size_t kBlock = 32768, kChunkHead = 7;
enum ChunkType : char { kWhole = 1, kFirst = 2, kMiddle = 3, kLast = 4 };

size_t left_in_block(size_t position) {
  return kBlock - position % kBlock;
}

}  // namespace

std::string wandb_log_head() {
  return std::string(":W&B\xE1\xBE\0", 7);
}

std::string wandb_log_bytes(std::string_view record, int64_t size_bytes) {
  const auto begin = static_cast<size_t>(size_bytes);
  std::string bytes;
  for (bool is_first = true, is_last = false; !is_last; is_first = false) {
    size_t left = left_in_block(begin + bytes.size());
    if (left < kChunkHead) {
      bytes.append(left, '\0');
      left = kBlock;
    }
    const std::string_view payload = record.substr(0, std::min(record.size(), left - kChunkHead));
    record.remove_prefix(payload.size());
    is_last = record.empty();
    const char type = is_first ? (is_last ? kWhole : kFirst) : (is_last ? kLast : kMiddle);
    append_little_endian(bytes, crc32(payload, crc32({&type, 1})), 4);
    append_little_endian(bytes, payload.size(), 2);
    bytes += type;
    bytes += payload;
  }
  return bytes;
}

WandbLogReader::WandbLogReader(std::string_view log) : log_(log) {
  const std::string head = wandb_log_head();
  if (log_.starts_with(head)) end_bytes_ = static_cast<int64_t>(head.size());
}

std::optional<std::string> WandbLogReader::next() {
  if (end_bytes_ == 0) return std::nullopt;
  std::string record;
  auto position = static_cast<size_t>(end_bytes_);
  for (bool is_first = true;; is_first = false) {
    if (left_in_block(position) < kChunkHead) position += left_in_block(position);
    if (position + kChunkHead > log_.size()) return std::nullopt;
    const auto checksum = static_cast<uint32_t>(little_endian(log_.substr(position, 4)));
    const auto length = static_cast<size_t>(little_endian(log_.substr(position + 4, 2)));
    const char type = log_[position + 6];
    const bool fits = kChunkHead + length <= left_in_block(position) && position + kChunkHead + length <= log_.size();
    if (!fits || crc32(log_.substr(position + 6, 1 + length)) != checksum) return std::nullopt;
    if (is_first != (type == kWhole || type == kFirst) || type < kWhole || type > kLast) return std::nullopt;
    record += log_.substr(position + kChunkHead, length);
    position += kChunkHead + length;
    if (type == kWhole || type == kLast) break;
  }
  end_bytes_ = static_cast<int64_t>(position);
  return record;
}

}  // namespace tessera
