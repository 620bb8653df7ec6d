#include "tessera/comm/tcp/greeting.h"

#include <fmt/format.h>

#include <cstdlib>
#include <cstring>

namespace tessera {
namespace {

constexpr uint64_t kMagic = 0x3172'6573'7365'7401;  // begins a greeting
constexpr uint32_t kFrameMagic = 0x7465'0000;       // the upper half of a frame's first word
constexpr uint32_t kMostRanks = 1 << 20, kHighestChannel = 1 << 30;

// The fields in the order of their bytes. All supported processors are little-endian.
struct Wire {
  uint64_t magic;
  uint64_t token[2];
  uint32_t protocol;
  int32_t rank, size, channel, port;
  uint32_t unused;
};
static_assert(sizeof(Wire) == Greeting::kBytes);

}  // namespace

RunToken run_token(const std::string& text) {
  RunToken token{{0xcbf29ce484222325u, 0x9e3779b97f4a7c15u}};
  for (const char c : text) {
    for (uint64_t& word : token.words) {
      word = (word ^ static_cast<unsigned char>(c)) * 0x100000001b3u;
      word ^= word >> 29;
    }
  }
  return token;
}

std::array<std::byte, Greeting::kBytes> Greeting::to_bytes() const {
  const Wire wire{kMagic, {token.words[0], token.words[1]}, protocol, rank, size, channel, port, 0};
  std::array<std::byte, kBytes> bytes;
  std::memcpy(bytes.data(), &wire, sizeof wire);
  return bytes;
}

std::optional<Greeting> Greeting::parse(std::span<const std::byte, kBytes> bytes) {
  Wire wire;
  std::memcpy(&wire, bytes.data(), sizeof wire);
  if (wire.magic != kMagic) return std::nullopt;
  Greeting greeting{.token = {{wire.token[0], wire.token[1]}}, .protocol = wire.protocol};
  if (wire.protocol != kTcpProtocol) return greeting;
  const bool is_valid = wire.size >= 1 && wire.size <= static_cast<int32_t>(kMostRanks) && wire.rank >= 0 &&
                        wire.rank < wire.size && wire.channel >= kLine &&
                        wire.channel <= static_cast<int32_t>(kHighestChannel) && wire.port >= 0 && wire.port <= 65535;
  if (!is_valid) return std::nullopt;
  greeting.rank = wire.rank;
  greeting.size = wire.size;
  greeting.channel = wire.channel;
  greeting.port = wire.port;
  return greeting;
}

std::string Frame::to_bytes() const {
  const uint32_t head[2] = {kFrameMagic | static_cast<uint32_t>(kind), static_cast<uint32_t>(text.size())};
  std::string bytes(reinterpret_cast<const char*>(head), sizeof head);
  return bytes + text;
}

std::optional<std::pair<Frame::Kind, uint32_t>> Frame::parse_head(std::span<const std::byte, kHeadBytes> bytes) {
  uint32_t head[2];
  std::memcpy(head, bytes.data(), sizeof head);
  const uint32_t kind = head[0] ^ kFrameMagic;
  const bool is_valid =
      kind >= static_cast<uint32_t>(Kind::kWelcome) && kind <= static_cast<uint32_t>(Kind::kEnd) && head[1] <= kLongest;
  if (!is_valid) return std::nullopt;
  return std::pair(static_cast<Kind>(kind), head[1]);
}

std::optional<Frame> receive_frame(const Socket& socket, Deadline end) {
  std::array<std::byte, Frame::kHeadBytes> bytes;
  if (!receive_all(socket, bytes.data(), bytes.size(), end)) return std::nullopt;
  const auto head = Frame::parse_head(bytes);
  if (!head) return std::nullopt;
  Frame frame{.kind = head->first, .text = std::string(head->second, '\0')};
  if (!receive_all(socket, frame.text.data(), frame.text.size(), end)) return std::nullopt;
  return frame;
}

bool send_frame(const Socket& socket, const Frame& frame, Deadline end) {
  const std::string bytes = frame.to_bytes();
  return send_all(socket, bytes.data(), bytes.size(), end);
}

Frame refusal(const Error& error) {
  return {Frame::Kind::kRefused, fmt::format("{} {}", static_cast<int>(error.code()), error.what())};
}

void throw_if_refused(const Frame& frame) {
  if (frame.kind != Frame::Kind::kRefused) return;
  const size_t blank = frame.text.find(' ');
  const std::string text = printable(blank == std::string::npos ? frame.text : frame.text.substr(blank + 1), 1000);
  if (std::atoi(frame.text.c_str()) == static_cast<int>(ExitCode::kUsage)) throw UsageError("", text);
  throw CommunicationError("", text);
}

}  // namespace tessera
