// A connection carries only the bytes of the messages. The receiver knows their lengths (comm/messenger.h).
#include "tessera/comm/tcp/tcp_channel.h"

#include <poll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <deque>
#include <utility>

namespace tessera {
namespace {

class TcpChannel final : public Channel {
 public:
  explicit TcpChannel(std::vector<Socket> sockets) : links_(sockets.size()) {
    for (size_t i = 0; i < sockets.size(); ++i) links_[i].socket = std::move(sockets[i]);
  }
  std::unique_ptr<MessageBatch> make_batch() override;

 private:
  class Batch;
  struct Transfer {
    std::byte* data;  // of a message that is sent: not written
    int64_t bytes;    // not transferred yet
    Batch* batch;
  };
  struct Link {
    Socket socket;
    std::deque<Transfer> sends, receives;
  };
  // Moves the first transfers of a link as far as the connection allows. Returns whether any byte was moved.
  bool send_some(int peer);
  bool receive_some(int peer);
  void fail(int peer, const std::string& what) const { throw MessageFailure{peer, what}; }

  std::vector<Link> links_;
};

class TcpChannel::Batch final : public MessageBatch {
 public:
  explicit Batch(TcpChannel& channel) : channel_(channel) {}
  ~Batch() override {
    if (num_open_ == 0) return;
    const auto is_ours = [this](const Transfer& transfer) { return transfer.batch == this; };
    for (Link& link : channel_.links_) {
      std::erase_if(link.sends, is_ours);
      std::erase_if(link.receives, is_ours);
      link.socket = Socket();
    }
  }
  void send(int peer, const std::byte* data, int64_t bytes) override {
    add(channel_.links_[static_cast<size_t>(peer)].sends, const_cast<std::byte*>(data), bytes);
  }
  void receive(int peer, std::byte* data, int64_t bytes) override {
    add(channel_.links_[static_cast<size_t>(peer)].receives, data, bytes);
  }
  std::vector<int> wait(Clock::time_point end, const std::function<void()>& sleeps) override;

 private:
  friend TcpChannel;
  void add(std::deque<Transfer>& queue, std::byte* data, int64_t bytes) {
    if (bytes == 0) return;
    queue.push_back({data, bytes, this});
    ++num_open_;
  }

  TcpChannel& channel_;
  int num_open_ = 0;  // transfers that are not done
};

std::unique_ptr<MessageBatch> TcpChannel::make_batch() {
  return std::make_unique<Batch>(*this);
}

bool TcpChannel::send_some(int peer) {
  Link& link = links_[static_cast<size_t>(peer)];
  bool moved = false;
  while (!link.sends.empty()) {
    Transfer& transfer = link.sends.front();
    const ssize_t count =
        send(link.socket.descriptor(), transfer.data, static_cast<size_t>(transfer.bytes), MSG_NOSIGNAL);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count < 0)
      fail(peer,
           errno == EPIPE || errno == ECONNRESET || errno == EBADF ? "has ended or failed" : std::strerror(errno));
    moved = true;
    transfer.data += count;
    transfer.bytes -= count;
    if (transfer.bytes > 0) continue;
    --transfer.batch->num_open_;
    link.sends.pop_front();
  }
  return moved;
}

bool TcpChannel::receive_some(int peer) {
  Link& link = links_[static_cast<size_t>(peer)];
  bool moved = false;
  while (!link.receives.empty()) {
    Transfer& transfer = link.receives.front();
    const ssize_t count = recv(link.socket.descriptor(), transfer.data, static_cast<size_t>(transfer.bytes), 0);
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) break;
    if (count <= 0)
      fail(peer, count == 0 || errno == ECONNRESET || errno == EBADF ? "has ended or failed" : std::strerror(errno));
    moved = true;
    transfer.data += count;
    transfer.bytes -= count;
    if (transfer.bytes > 0) continue;
    --transfer.batch->num_open_;
    link.receives.pop_front();
  }
  return moved;
}

std::vector<int> TcpChannel::Batch::wait(Clock::time_point end, const std::function<void()>& sleeps) {
  std::vector<pollfd> events(channel_.links_.size());
  bool has_slept = false;
  // All transfers of the channel continue, not only those of this batch: a peer may first need the next batch.
  const auto move_all = [&] {
    bool moved = false;
    for (size_t i = 0; i < events.size(); ++i) {
      const int peer = static_cast<int>(i);
      moved |= channel_.send_some(peer);
      moved |= channel_.receive_some(peer);
    }
    return moved;
  };
  while (num_open_ > 0) {
    if (move_all()) continue;
    for (size_t i = 0; i < events.size(); ++i) {
      const Link& link = channel_.links_[i];
      const int wanted = (link.sends.empty() ? 0 : POLLOUT) | (link.receives.empty() ? 0 : POLLIN);
      // A negative descriptor is ignored. A connection that nobody needs now must not wake this thread if it ends.
      events[i] = {wanted == 0 ? -1 : link.socket.descriptor(), static_cast<short>(wanted), 0};
    }
    const int time_ms = milliseconds_until(end);
    if (time_ms == 0) {
      std::vector<int> late;
      for (size_t i = 0; i < events.size(); ++i) {
        const auto is_ours = [this](const Transfer& transfer) { return transfer.batch == this; };
        const Link& link = channel_.links_[i];
        const bool is_late = std::any_of(link.sends.begin(), link.sends.end(), is_ours) ||
                             std::any_of(link.receives.begin(), link.receives.end(), is_ours);
        if (is_late) late.push_back(static_cast<int>(i));
      }
      return late;
    }
    if (!std::exchange(has_slept, true)) sleeps();
    poll(events.data(), events.size(), time_ms);
  }
  return {};
}

}  // namespace

std::unique_ptr<Channel> make_tcp_channel(std::vector<Socket> sockets) {
  return std::make_unique<TcpChannel>(std::move(sockets));
}

}  // namespace tessera
