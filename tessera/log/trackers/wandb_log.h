// The log of a W&B run (run-ID.wandb): records of any size in blocks of 32 KiB, as in LevelDB's log.
//
// The file begins with the 7 bytes of wandb_log_head(), which belong to the first block. A block holds chunks. A chunk
// has a head of 7 bytes and a payload. The head consists of CRC-32 (4 bytes), length of the payload (2) and type (1). A
// record that does not fit into the rest of a block continues in a chunk of the next block. If fewer than 7 bytes are
// left in a block, too few for a head, these bytes are zero.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// The first bytes of a log.
std::string wandb_log_head();

// Returns the bytes that must be appended to a log of `size_bytes` bytes to add a record.
std::string wandb_log_bytes(std::string_view record, int64_t size_bytes);

class WandbLogReader {
 public:
  explicit WandbLogReader(std::string_view log);
  // Returns the next complete record. Returns nothing at the end, or where the log is damaged or cut off.
  std::optional<std::string> next();
  // Where the last returned record ends in the log. Before the first record: where wandb_log_head() ends. 0 if the log
  // does not begin with wandb_log_head().
  int64_t end_bytes() const { return end_bytes_; }

 private:
  std::string_view log_;
  int64_t end_bytes_ = 0;
};

}  // namespace tessera
