// How ranks find each other:
//   1. Every rank listens at a port. Rank 0 listens at the meeting point.
//   2. Every other rank connects to rank 0 and says at which port it listens. This connection lasts until the end of
//   the
//      run (AlarmLine).
//   3. When all ranks have arrived, rank 0 sends every rank the table of all addresses and ports.
//   4. To open a channel, each rank connects to all lower ranks of the channel. Rank 0 is therefore reached only
//   through
//      the meeting point.
#include "tessera/comm/tcp/tcp_messenger.h"

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/resource.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <numeric>
#include <sstream>
#include <thread>

#include "tessera/base/option_names.h"
#include "tessera/comm/tcp/alarm_line.h"
#include "tessera/comm/tcp/doorway.h"
#include "tessera/comm/tcp/tcp_channel.h"

namespace tessera {
namespace {

constexpr const char* kLoopback = "127.0.0.1";
// Added to the time limit at the start, because processes also need time to start. The other ranks wait longer than
// rank 0, because rank 0 knows which ranks are missing.
constexpr double kStartSlack_s = 5, kSlackOfOthers_s = 5;
constexpr double kAnswer_s = 5;  // for a rank that is running; a process that takes longer is no rank
constexpr double kFirstPause_s = 0.02, kLongestPause_s = 0.5;  // between two attempts to connect

struct Place {
  std::string address;
  int port = 0;
};

std::string names_of_ranks(const std::vector<int>& ranks) {
  std::string text = ranks.size() == 1 ? "Rank " : "Ranks ";
  for (size_t i = 0; i < ranks.size(); ++i) text += fmt::format("{}{}", i > 0 ? ", " : "", ranks[i]);
  return text;
}

std::string ports_text(const MeetingPoint& meeting) {
  return meeting.num_ports == 1
             ? fmt::format("port {}", meeting.first_port)
             : fmt::format("ports {} to {}", meeting.first_port, meeting.first_port + meeting.num_ports - 1);
}

// A channel needs a descriptor for each of its ranks. The limit that a shell sets is often low, although the system
// allows more.
void raise_descriptor_limit() {
  rlimit limit{};
  if (getrlimit(RLIMIT_NOFILE, &limit) != 0 || limit.rlim_cur == limit.rlim_max) return;
  limit.rlim_cur = limit.rlim_max;
  setrlimit(RLIMIT_NOFILE, &limit);
}

class TcpMessenger final : public Messenger {
 public:
  TcpMessenger(int rank, int size, const MeetingPoint& meeting, TcpOptions options)
      : rank_(rank),
        size_(size),
        token_(run_token(meeting.token)),
        options_(std::move(options)),
        start_s_(options_.timeout_s + kStartSlack_s),
        places_(static_cast<size_t>(size)) {
    if (size > 64) raise_descriptor_limit();
    if (rank == 0) {
      receive_all_ranks(meeting);
    } else {
      join(meeting);
    }
  }

  int rank() const override { return rank_; }
  int size() const override { return size_; }
  std::string name() const override { return "TCP"; }

  std::unique_ptr<Channel> open(int number, const std::vector<int>& members) override {
    const Deadline end = deadline_in(options_.timeout_s);
    std::vector<Socket> sockets(members.size());
    std::vector<int> higher;
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] > rank_) higher.push_back(members[i]);
      if (members[i] < rank_) sockets[i] = connect_to_rank(members[i], number, end);
    }
    std::map<int, Doorway::Guest> guests = doorway_->take(number, higher, end);
    std::vector<int> missing;
    for (size_t i = 0; i < members.size(); ++i) {
      if (members[i] <= rank_) continue;
      const auto it = guests.find(members[i]);
      if (it == guests.end()) {
        missing.push_back(members[i]);
      } else {
        sockets[i] = std::move(it->second.socket);
      }
    }
    if (!missing.empty()) {
      fail_waiting(missing);
    }
    return make_tcp_channel(std::move(sockets));
  }

  void finish() override { line_->finish(); }
  void watch(std::function<void(const Alarm&)> ring) override { line_->watch(std::move(ring)); }
  void raise(ExitCode code, const std::string& error) override { line_->raise(code, error); }
  void enter_phase(const char* phase) override { line_->enter_phase(phase); }

 private:
  [[noreturn]] void fail(const std::string& what, const std::string& remedy = "") const {
    throw CommunicationError(fmt::format("rank {}", rank_), what, remedy);
  }
  [[noreturn]] void fail_waiting(const std::vector<int>& ranks) const {
    std::string names = names_of_ranks(ranks);
    names[0] = 'r';
    fail(fmt::format("opening of connections: waited {} s for {}.{}", options_.timeout_s, names,
                     missing_of_this_machine()));
  }
  std::string missing_of_this_machine() const {
    const std::string text = options_.missing ? options_.missing() : "";
    return text.empty() ? "" : " " + text;
  }
  void open_doorway(Socket listener) {
    doorway_ = std::make_unique<Doorway>(
        std::move(listener), Doorway::Options{.token = token_, .size = size_, .log = [this](const std::string& line) {
                                                if (options_.log) options_.log(fmt::format("rank {}: {}", rank_, line));
                                              }});
  }
  Greeting greeting(int channel, int port = 0) const {
    return {.token = token_, .rank = rank_, .size = size_, .channel = channel, .port = port};
  }

  // ---- The start of rank 0

  Socket listen_at_meeting(const MeetingPoint& meeting) {
    if (meeting.listener >= 0) {
      fcntl(meeting.listener, F_SETFD, FD_CLOEXEC);
      return Socket(meeting.listener);
    }
    int error = 0;
    for (int port = meeting.first_port; port < meeting.first_port + meeting.num_ports; ++port) {
      Socket listener = listen_at(meeting.is_local ? kLoopback : "", port);
      if (listener) return listener;
      error = errno;
      // If another process of this run listens there, it refuses this rank.
      std::string ignored;
      const Deadline soon = deadline_in(kAnswer_s);
      if (const Socket other = connect_to(kLoopback, port, soon, ignored)) {
        greet(other, Greeting::kLine, 0, soon);
      }
    }
    fail(fmt::format("cannot listen at {}: {}", ports_text(meeting), std::strerror(error)),
         "Choose a free port (MASTER_PORT)");
  }

  void receive_all_ranks(const MeetingPoint& meeting) {
    const Deadline end = deadline_in(start_s_);
    open_doorway(listen_at_meeting(meeting));
    std::vector<int> others(static_cast<size_t>(size_ - 1));
    std::iota(others.begin(), others.end(), 1);
    std::map<int, Doorway::Guest> guests;
    try {
      guests = doorway_->take(Greeting::kLine, others, end);
      if (std::ssize(guests) < size_ - 1) fail_missing(guests);
    } catch (const Error& error) {
      refuse_all(std::move(guests), error);
      throw;
    }
    std::map<int, AlarmLine::Peer> peers;
    std::string table;
    for (const auto& [rank, guest] : guests) table += fmt::format("{} {}\n", guest.address, guest.greeting.port);
    for (auto& [rank, guest] : guests) {
      places_[static_cast<size_t>(rank)] = {guest.address, guest.greeting.port};
      send_frame(guest.socket, {Frame::Kind::kTable, table}, deadline_in(kAnswer_s));
      peers[rank] = {std::move(guest.socket), guest.address};
    }
    line_ = std::make_unique<AlarmLine>(rank_, std::move(peers));
  }
  [[noreturn]] void fail_missing(const std::map<int, Doorway::Guest>& guests) const {
    std::string missing = missing_of_this_machine();
    if (missing.empty()) {
      std::vector<int> ranks;
      for (int rank = 1; rank < size_; ++rank) {
        if (!guests.contains(rank)) ranks.push_back(rank);
      }
      missing = fmt::format(" {} {} not arrived. If ranks start slowly, give a longer {}", names_of_ranks(ranks),
                            ranks.size() == 1 ? "has" : "have", option("comm_timeout"));
    }
    fail(fmt::format("not all ranks have arrived within {} s.{}", start_s_, missing));
  }
  // Sends the error to the ranks that have arrived.
  void refuse_all(std::map<int, Doorway::Guest> guests, const Error& error) {
    guests.merge(doorway_->take_present(Greeting::kLine));
    for (const auto& [rank, guest] : guests) send_frame(guest.socket, refusal(error), deadline_in(1));
  }

  // ---- The start of the other ranks

  // Sends a greeting, and returns the answer. Returns nullopt if the other side is not a rank of this program.
  std::optional<Frame> greet(const Socket& socket, int channel, int port, Deadline end) const {
    const auto bytes = greeting(channel, port).to_bytes();
    if (!send_all(socket, bytes.data(), bytes.size(), end)) return std::nullopt;
    std::optional<Frame> answer = receive_frame(socket, end);
    if (answer) throw_if_refused(*answer);
    return answer;
  }

  void join(const MeetingPoint& meeting) {
    const Deadline end = deadline_in(start_s_ + kSlackOfOthers_s);
    const std::string host = meeting.is_local ? kLoopback : meeting.host;
    double pause_s = kFirstPause_s;
    std::string problem = "no answer";
    Socket master;
    Socket listener;
    while (!master) {
      for (int port = meeting.first_port; port < meeting.first_port + meeting.num_ports && !master; ++port) {
        const Deadline soon = std::min(end, deadline_in(kAnswer_s));
        Socket socket = connect_to(host, port, soon, problem);
        if (!socket) continue;
        listener = listen_for(socket, meeting.is_local);
        const auto answer = greet(socket, Greeting::kLine, own_port(listener), soon);
        if (answer && answer->kind == Frame::Kind::kWelcome) {
          master = std::move(socket);
          places_[0] = {address_of_peer(master), port};
        }
        problem = answer ? "a process of another run listens there" : "no answer";
      }
      if (master) break;
      if (milliseconds_until(end) == 0) {
        fail(fmt::format("cannot reach rank 0 at {}, {} ({}) within {} s: {}.{}", printable(host), ports_text(meeting),
                         meeting.place, start_s_ + kSlackOfOthers_s, problem, missing_of_this_machine()));
      }
      std::this_thread::sleep_for(std::min<std::chrono::duration<double>>(std::chrono::duration<double>(pause_s),
                                                                          end - std::chrono::steady_clock::now()));
      pause_s = std::min(2 * pause_s, kLongestPause_s);
    }
    open_doorway(std::move(listener));
    const std::optional<Frame> table = receive_frame(master, end);
    if (table) throw_if_refused(*table);
    if (!table || table->kind != Frame::Kind::kTable) {
      const bool is_late = milliseconds_until(end) == 0;
      fail(is_late ? fmt::format("not all ranks have arrived within {} s.{}", start_s_ + kSlackOfOthers_s,
                                 missing_of_this_machine())
                   : std::string("rank 0 has ended or failed before all ranks had arrived"));
    }
    read_table(table->text);
    std::map<int, AlarmLine::Peer> peers;
    peers[0] = {std::move(master), places_[0].address};
    line_ = std::make_unique<AlarmLine>(rank_, std::move(peers));
  }
  // Listens at the address through which this rank reaches rank 0. If this is a loopback address, ranks of other
  // machines may need another one.
  Socket listen_for(const Socket& master, bool is_local) const {
    const std::string own = own_address(master);
    Socket listener = listen_at(is_local ? kLoopback : is_loopback(own) ? "" : own, 0);
    if (!listener) fail(fmt::format("cannot listen at a port: {}", std::strerror(errno)));
    return listener;
  }
  // A rank that reaches rank 0 through a loopback address is on the machine of rank 0.
  void read_table(const std::string& text) {
    std::istringstream stream(text);
    for (size_t rank = 1; rank < places_.size(); ++rank) {
      Place& place = places_[rank];
      if (!(stream >> place.address >> place.port) || place.port < 1 || place.port > 65535) {
        fail("the table of addresses from rank 0 is not valid");
      }
      if (is_loopback(place.address)) place.address = places_[0].address;
    }
  }

  Socket connect_to_rank(int peer, int channel, Deadline end) const {
    const auto& [address, port] = places_[static_cast<size_t>(peer)];
    std::string problem;
    Socket socket = connect_to(address, port, end, problem);
    const auto answer = socket ? greet(socket, channel, 0, end) : std::nullopt;
    if (!answer && milliseconds_until(end) == 0) fail_waiting({peer});
    if (!answer || answer->kind != Frame::Kind::kWelcome) {
      fail(fmt::format("cannot connect to rank {} at {} port {}: {}", peer, address, port,
                       socket ? "it has ended or failed" : problem));
    }
    return socket;
  }

  const int rank_, size_;
  const RunToken token_;
  const TcpOptions options_;
  const double start_s_;
  std::vector<Place> places_;  // by rank
  std::unique_ptr<Doorway> doorway_;
  std::unique_ptr<AlarmLine> line_;
};

}  // namespace

std::unique_ptr<Messenger> make_tcp_messenger(int rank, int size, const MeetingPoint& meeting,
                                              const TcpOptions& options) {
  return std::make_unique<TcpMessenger>(rank, size, meeting, options);
}

}  // namespace tessera
