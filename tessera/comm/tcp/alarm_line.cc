#include "tessera/comm/tcp/alarm_line.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <sstream>
#include <utility>
#include <vector>

#include "tessera/base/start_thread.h"

namespace tessera {
namespace {

constexpr size_t kLongestText = 2000;  // bytes of a phase or of an error
constexpr int kLongestSilence_s = 30;  // of a peer that must acknowledge data

}  // namespace

AlarmLine::AlarmLine(int rank, std::map<int, Peer> peers) : rank_(rank), wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {
  for (auto& [number, peer] : peers) {
    limit_silence(peer.socket, kLongestSilence_s);
    links_[number].peer = std::move(peer);
  }
  thread_ = start_thread("watching the connections of all ranks", [this] { work(); });
}

AlarmLine::~AlarmLine() {
  {
    const std::lock_guard lock(mutex_);
    stops_ = true;
  }
  eventfd_write(wake_.descriptor(), 1);
  thread_.join();
}

std::string AlarmLine::text_of(const Alarm& alarm) {
  return fmt::format("{} {} {} {}", static_cast<int>(alarm.code), alarm.rank, alarm.is_lost ? 1 : 0,
                     alarm.error.substr(0, kLongestText));
}

std::optional<Alarm> AlarmLine::parse(const std::string& text) {
  std::istringstream stream(text);
  int code = 0, rank = 0, is_lost = 0;
  if (!(stream >> code >> rank >> is_lost) || stream.get() != ' ' || code < 0 || code > 255 || rank < 0) {
    return std::nullopt;
  }
  std::string error;
  std::getline(stream, error, '\0');
  return Alarm{.rank = rank, .code = static_cast<ExitCode>(code), .error = error, .is_lost = is_lost != 0};
}

void AlarmLine::watch(std::function<void(const Alarm&)> ring) {
  std::unique_lock lock(mutex_);
  ring_ = std::move(ring);
  eventfd_write(wake_.descriptor(), 1);  // an alarm may have come before
  changed_.wait(lock, [&] { return !rings_; });
}

void AlarmLine::raise(ExitCode code, const std::string& error) {
  const std::lock_guard lock(mutex_);
  for (auto& [number, link] : links_) {
    send(link, {Frame::Kind::kAlarm, text_of({.rank = rank_, .code = code, .error = error, .is_lost = false})});
  }
}

void AlarmLine::enter_phase(const char* phase) {
  const std::lock_guard lock(mutex_);
  if (phase_ == phase) return;
  phase_ = phase;
  for (auto& [number, link] : links_) send(link, {Frame::Kind::kPhase, phase_});
}

// A rank other than rank 0 ends after rank 0 has said that all ranks have ended. So no rank is missing at the end of
// another rank.
void AlarmLine::finish() {
  std::unique_lock lock(mutex_);
  finishes_ = true;
  const auto say = [&] {
    for (auto& [number, link] : links_) send(link, {Frame::Kind::kEnd});
  };
  if (rank_ != 0) say();
  changed_.wait(lock, [&] { return all_have_ended(); });
  if (rank_ == 0) say();
}

bool AlarmLine::all_have_ended() const {
  return std::all_of(links_.begin(), links_.end(), [](const auto& link) { return link.second.has_ended; });
}

// Frames are small, so they fit into the buffer of the socket, except if the peer has not read for a long time. The
// frame is then lost, and no other frame may follow a part of it.
void AlarmLine::send(Link& link, const Frame& frame) {
  if (!link.peer.socket) return;
  const std::string bytes = frame.to_bytes();
  const ssize_t count = ::send(link.peer.socket.descriptor(), bytes.data(), bytes.size(), MSG_NOSIGNAL | MSG_DONTWAIT);
  if (count >= 0 && count < std::ssize(bytes)) shutdown(link.peer.socket.descriptor(), SHUT_WR);
}

void AlarmLine::work() {
  for (;;) {
    std::vector<pollfd> events{{wake_.descriptor(), POLLIN, 0}};
    std::vector<int> ranks;
    {
      const std::lock_guard lock(mutex_);
      if (stops_) return;
      for (const auto& [number, link] : links_) {
        if (!link.peer.socket) continue;
        events.push_back({link.peer.socket.descriptor(), POLLIN, 0});
        ranks.push_back(number);
      }
    }
    poll(events.data(), events.size(), -1);
    std::function<void(const Alarm&)> ring;
    std::optional<Alarm> alarm;
    {
      const std::lock_guard lock(mutex_);
      eventfd_t ignored = 0;
      eventfd_read(wake_.descriptor(), &ignored);
      for (size_t i = 0; i < ranks.size(); ++i) {
        Link& link = links_[ranks[i]];
        if (events[i + 1].revents == 0 || read(ranks[i], link)) continue;
        link.peer.socket = Socket();
        const bool is_lost = !std::exchange(link.has_ended, true);
        if (is_lost && !finishes_) {
          sound({.rank = ranks[i],
                 .code = ExitCode::kCommunication,
                 .error =
                     fmt::format("rank {} ({}) was killed, or ended without an error message. Rank {} was in phase {}.",
                                 ranks[i], link.peer.address, ranks[i], link.phase),
                 .is_lost = true},
                ranks[i]);
        }
      }
      changed_.notify_all();
      if (alarm_ && ring_ && !finishes_ && !std::exchange(has_rung_, true)) ring = ring_, alarm = alarm_;
      rings_ = static_cast<bool>(ring);
    }
    if (!ring) continue;
    ring(*alarm);
    const std::lock_guard lock(mutex_);
    rings_ = false;
    changed_.notify_all();
  }
}

// Rank 0 passes the first alarm on.
void AlarmLine::sound(const Alarm& alarm, int source) {
  if (alarm_) return;
  alarm_ = alarm;
  for (auto& [number, link] : links_) {
    if (rank_ == 0 && number != source) send(link, {Frame::Kind::kAlarm, text_of(alarm)});
  }
}

bool AlarmLine::read(int rank, Link& link) {
  for (;;) {
    std::array<char, 4096> buffer;
    const ssize_t count = recv(link.peer.socket.descriptor(), buffer.data(), buffer.size(), MSG_DONTWAIT);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) return true;
    if (count <= 0) return false;
    link.received.append(buffer.data(), static_cast<size_t>(count));
    for (;;) {
      if (link.received.size() < Frame::kHeadBytes) break;
      const auto* bytes = reinterpret_cast<const std::byte*>(link.received.data());
      const auto head = Frame::parse_head(std::span<const std::byte, Frame::kHeadBytes>(bytes, Frame::kHeadBytes));
      if (!head || head->second > 2 * kLongestText) return false;
      if (link.received.size() < Frame::kHeadBytes + head->second) break;
      take(rank, link, {head->first, link.received.substr(Frame::kHeadBytes, head->second)});
      link.received.erase(0, Frame::kHeadBytes + head->second);
    }
  }
}

void AlarmLine::take(int rank, Link& link, const Frame& frame) {
  if (frame.kind == Frame::Kind::kPhase) link.phase = printable(frame.text);
  if (frame.kind == Frame::Kind::kEnd) link.has_ended = true;
  if (frame.kind != Frame::Kind::kAlarm) return;
  if (const auto alarm = parse(frame.text)) {
    link.has_ended = true;
    sound(*alarm, rank);
  }
}

}  // namespace tessera
