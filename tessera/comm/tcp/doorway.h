// Accepts the connections of other ranks during the complete run.
#pragma once

#include <condition_variable>
#include <functional>
#include <list>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>
#include <vector>

#include "tessera/comm/tcp/greeting.h"
#include "tessera/comm/tcp/socket.h"

namespace tessera {

// A thread that accepts connections and reads their greetings. It closes a connection that
//   - sends something else, or no complete greeting within `greeting_s`,
//   - has another token than this run,
//   - is one of more than kMostGuests connections that have not sent their greeting (the oldest one is closed).
// It passes these events to `log`, at most kMostLines times.
class Doorway {
 public:
  static constexpr size_t kMostGuests = 256;
  static constexpr int kMostLines = 10;
  struct Options {
    RunToken token;
    int size = 1;  // of the run
    double greeting_s = 10;
    std::function<void(const std::string&)> log{};
  };
  Doorway(Socket listener, Options options);
  ~Doorway();
  Doorway(const Doorway&) = delete;
  Doorway& operator=(const Doorway&) = delete;

  int port() const { return port_; }

  // A rank that has been let in.
  struct Guest {
    Socket socket;
    Greeting greeting;
    std::string address;
  };
  // Waits until all of `ranks` have connected to this process for the channel, but not longer than until `end`. Returns
  // the connections by rank; those that have not arrived are missing. A connection is returned once. If processes of
  // this run contradict each other, throws UsageError immediately: two have the same rank, they differ in the number of
  // ranks, or they have programs of different versions.
  std::map<int, Guest> take(int channel, const std::vector<int>& ranks, Deadline end);
  // Returns the connections for the channel that have arrived and that no call has returned yet.
  std::map<int, Guest> take_present(int channel);

 private:
  struct Arrival {
    Socket socket;
    std::string address;
    Deadline end;
    size_t num_bytes = 0;
    std::array<std::byte, Greeting::kBytes> bytes{};
  };
  void work();
  void accept_arrivals();
  bool read(Arrival& arrival);  // returns false if the arrival needs no more attention
  void greet(Arrival& arrival);
  void refuse(Arrival& arrival, const std::string& why);
  void log(const std::string& line);

  const Socket listener_;
  const int port_;
  const Options options_;
  Socket wake_;  // readable at the end
  int num_lines_ = 0;
  std::list<Arrival> arrivals_;  // used only by the thread
  std::mutex mutex_;             // guards what follows
  std::condition_variable changed_;
  std::map<std::pair<int, int>, Guest> guests_;           // by channel and rank
  std::map<std::pair<int, int>, std::string> addresses_;  // of all guests so far
  std::optional<UsageError> contradiction_;
  std::jthread thread_;
};

}  // namespace tessera
