#include "tessera/comm/tcp/doorway.h"

#include <fmt/format.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "tessera/base/start_thread.h"

namespace tessera {

Doorway::Doorway(Socket listener, Options options)
    : listener_(std::move(listener)),
      port_(own_port(listener_)),
      options_(std::move(options)),
      wake_(eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)),
      thread_(start_thread("accepting connections", [this] { work(); })) {}

Doorway::~Doorway() {
  eventfd_write(wake_.descriptor(), 1);
  thread_.join();
}

void Doorway::log(const std::string& line) {
  if (options_.log && num_lines_++ < kMostLines) options_.log(line);
}

void Doorway::work() {
  for (;;) {
    std::vector<pollfd> events{{wake_.descriptor(), POLLIN, 0}, {listener_.descriptor(), POLLIN, 0}};
    int time_ms = -1;
    for (const Arrival& arrival : arrivals_) {
      events.push_back({arrival.socket.descriptor(), POLLIN, 0});
      const int left_ms = milliseconds_until(arrival.end);
      time_ms = time_ms < 0 ? left_ms : std::min(time_ms, left_ms);
    }
    poll(events.data(), events.size(), time_ms);
    if (events[0].revents != 0) return;
    size_t i = 2;
    for (auto it = arrivals_.begin(); it != arrivals_.end(); ++i) {
      const bool stays = read(*it);
      it = stays ? std::next(it) : arrivals_.erase(it);
    }
    if (events[1].revents != 0) accept_arrivals();
  }
}

void Doorway::accept_arrivals() {
  for (;;) {
    Socket socket = accept_from(listener_);
    if (!socket) {
      if (errno == ECONNABORTED || errno == EINTR) continue;
      if (errno == EAGAIN) return;
      log(fmt::format("cannot accept a connection: {}", std::strerror(errno)));
      pollfd event{wake_.descriptor(), POLLIN, 0};
      poll(&event, 1, 100);  // descriptors or memory are short; the connection stays in the queue of the system
      return;
    }
    if (arrivals_.size() >= kMostGuests) {
      if (read(arrivals_.front())) refuse(arrivals_.front(), "too many connections sent no greeting");
      arrivals_.pop_front();
    }
    std::string address = address_of_peer(socket);
    arrivals_.push_back(
        {.socket = std::move(socket), .address = std::move(address), .end = deadline_in(options_.greeting_s)});
  }
}

bool Doorway::read(Arrival& arrival) {
  while (arrival.num_bytes < Greeting::kBytes) {
    const ssize_t count = recv(arrival.socket.descriptor(), arrival.bytes.data() + arrival.num_bytes,
                               Greeting::kBytes - arrival.num_bytes, 0);
    if (count > 0) {
      arrival.num_bytes += static_cast<size_t>(count);
      continue;
    }
    if (count < 0 && errno == EINTR) continue;
    if (count < 0 && errno == EAGAIN) {
      if (std::chrono::steady_clock::now() < arrival.end) return true;
      refuse(arrival, fmt::format("it sent no complete greeting within {} s", options_.greeting_s));
    } else if (arrival.num_bytes > 0) {
      refuse(arrival, "it ended within its greeting");
    }  // otherwise somebody only looked whether the port is open
    return false;
  }
  // A rank that waited too long for its answer has closed its connection, and will come again.
  if (!is_closed(arrival.socket)) greet(arrival);
  return false;
}

void Doorway::refuse(Arrival& arrival, const std::string& why) {
  log(fmt::format("refused a connection from {}: {}", arrival.address, why));
}

void Doorway::greet(Arrival& arrival) {
  const std::optional<Greeting> greeting = Greeting::parse(arrival.bytes);
  if (!greeting) return refuse(arrival, "it sent something else than a greeting of Tessera");
  const Deadline soon = deadline_in(1);  // an answer fits into the buffers of a new connection
  if (greeting->token != options_.token) {
    send_frame(arrival.socket, {Frame::Kind::kStranger}, soon);
    return refuse(arrival, "it belongs to another run");
  }
  const std::pair key{greeting->channel, greeting->rank};
  std::optional<UsageError> contradiction;
  const std::lock_guard lock(mutex_);
  const auto earlier = guests_.find(key);
  if (earlier != guests_.end() && is_closed(earlier->second.socket)) {
    guests_.erase(earlier);
    addresses_.erase(key);
  }
  if (greeting->protocol != kTcpProtocol) {
    contradiction.emplace(
        arrival.address,
        fmt::format("a process there has another version of Tessera: it uses version {} of the messages "
                    "between ranks, and this process version {}",
                    greeting->protocol, kTcpProtocol),
        "Start all ranks with the same program");
  } else if (greeting->size != options_.size) {
    contradiction.emplace("WORLD_SIZE",
                          fmt::format("is {} on rank {} ({}), but {} on rank 0", greeting->size, greeting->rank,
                                      arrival.address, options_.size),
                          "Start all ranks with the same number of ranks");
  } else if (addresses_.contains(key) || (greeting->channel == Greeting::kLine && greeting->rank == 0)) {
    const std::string first = greeting->rank == 0 ? "this address" : addresses_[key];
    contradiction.emplace(
        "RANK", fmt::format("is {} in two processes, at {} and at {}", greeting->rank, first, arrival.address),
        "Give each process its own rank. With torchrun, each node needs its own node rank");
  }
  if (contradiction) {
    send_frame(arrival.socket, refusal(*contradiction), soon);
    // After the start, a contradiction is no reason to end the run: a process came too late to be a part of it.
    contradiction_ = std::move(contradiction);
    log(fmt::format("refused a connection from {}: {}", arrival.address, contradiction_->what()));
  } else if (send_frame(arrival.socket, {Frame::Kind::kWelcome}, soon)) {
    addresses_[key] = arrival.address;
    guests_[key] = Guest{std::move(arrival.socket), *greeting, arrival.address};
  }
  changed_.notify_all();
}

std::map<int, Doorway::Guest> Doorway::take(int channel, const std::vector<int>& ranks, Deadline end) {
  std::unique_lock lock(mutex_);
  const auto all_are_here = [&] {
    return std::all_of(ranks.begin(), ranks.end(), [&](int rank) { return guests_.contains({channel, rank}); });
  };
  changed_.wait_until(lock, end, [&] { return (channel == Greeting::kLine && contradiction_) || all_are_here(); });
  if (channel == Greeting::kLine && contradiction_) throw UsageError(*contradiction_);
  std::map<int, Guest> found;
  for (const int rank : ranks) {
    if (auto node = guests_.extract({channel, rank})) found.emplace(rank, std::move(node.mapped()));
  }
  return found;
}

std::map<int, Doorway::Guest> Doorway::take_present(int channel) {
  const std::lock_guard lock(mutex_);
  std::map<int, Guest> found;
  for (auto it = guests_.begin(); it != guests_.end();) {
    const bool is_asked = it->first.first == channel;
    if (is_asked) found.emplace(it->first.second, std::move(it->second));
    it = is_asked ? guests_.erase(it) : std::next(it);
  }
  return found;
}

}  // namespace tessera
