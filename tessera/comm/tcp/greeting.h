// The first messages of every connection between ranks. The side that connects sends a Greeting. The other side answers
// with a Frame: kWelcome, or why it refuses the connection. A later version of this protocol may change everything
// except the first 32 bytes of a greeting and the first 8 bytes of a frame.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <span>
#include <string>

#include "tessera/base/error.h"
#include "tessera/comm/tcp/socket.h"

namespace tessera {

struct RunToken {
  std::array<uint64_t, 2> words{};
  bool operator==(const RunToken&) const = default;
};
// Two numbers that follow from a text. Not cryptographic.
RunToken run_token(const std::string& text);

constexpr uint32_t kTcpProtocol = 1;

struct Greeting {
  RunToken token{};
  uint32_t protocol = kTcpProtocol;
  int32_t rank = 0, size = 0;
  int32_t channel = 0;  // kLine, or the number of a channel (comm/messenger.h)
  int32_t port = 0;     // with kLine: where this rank listens

  static constexpr size_t kBytes = 48;
  static constexpr int32_t kLine = -1;  // the connection to rank 0 that lasts until the end of the run
  std::array<std::byte, kBytes> to_bytes() const;
  // Returns nullopt if the bytes are no greeting of this program, or if a number cannot be right. With another
  // protocol, only the token and the protocol are valid.
  static std::optional<Greeting> parse(std::span<const std::byte, kBytes> bytes);
};

struct Frame {
  enum class Kind : uint32_t {
    kWelcome = 1,
    kStranger,  // the greeting has another token: it belongs to another run
    kRefused,   // the run cannot start; text: exit code and error
    kTable,     // text: the addresses of all ranks, from rank 0
    kPhase,     // text: the phase of the sender
    kAlarm,     // text: exit code, rank and error of a failure (AlarmLine)
    kEnd,       // the sender has ended in order
  };
  Kind kind = Kind::kWelcome;
  std::string text{};

  static constexpr size_t kHeadBytes = 8;
  static constexpr uint32_t kLongest = 1 << 20;  // bytes of text: enough for a table of 10,000 ranks
  std::string to_bytes() const;
  // The kind, and the number of bytes of text that follow. Returns nullopt if the head is not valid.
  static std::optional<std::pair<Kind, uint32_t>> parse_head(std::span<const std::byte, kHeadBytes> bytes);
};

// Returns nullopt if no valid frame arrives before the deadline.
std::optional<Frame> receive_frame(const Socket& socket, Deadline end);
bool send_frame(const Socket& socket, const Frame& frame, Deadline end);

Frame refusal(const Error& error);
// Throws the error if the frame is a refusal.
void throw_if_refused(const Frame& frame);

}  // namespace tessera
