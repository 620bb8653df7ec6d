// The connections between rank 0 and every other rank. They last until the end of the run, so a rank that dies is
// noticed on all nodes, even while nobody waits for it.
#pragma once

#include <condition_variable>
#include <functional>
#include <map>
#include <mutex>
#include <optional>
#include <string>
#include <thread>

#include "tessera/comm/messenger.h"
#include "tessera/comm/tcp/greeting.h"
#include "tessera/comm/tcp/socket.h"

namespace tessera {

// A thread reads what the peers send. Rank 0 passes an alarm of one rank on to all other ranks. If a connection ends
// before its peer has said that it ends in order, the peer is lost, which is an alarm too. Each rank informs rank 0
// about its phase, so rank 0 can report the phase of a rank that is lost.
class AlarmLine {
 public:
  struct Peer {
    Socket socket;
    std::string address;
  };
  // `peers`: for rank 0, all other ranks; for another rank, only rank 0.
  AlarmLine(int rank, std::map<int, Peer> peers);
  ~AlarmLine();
  AlarmLine(const AlarmLine&) = delete;
  AlarmLine& operator=(const AlarmLine&) = delete;

  // These functions are those of Messenger.
  void watch(std::function<void(const Alarm&)> ring);
  void raise(ExitCode code, const std::string& error);
  void enter_phase(const char* phase);
  void finish();

  // The text of a frame kAlarm: "<exit code> <rank> <1 if the rank is lost> <error>".
  static std::string text_of(const Alarm& alarm);
  static std::optional<Alarm> parse(const std::string& text);

 private:
  struct Link {
    Peer peer;
    std::string received;  // the beginning of a frame
    std::string phase = "start";
    bool has_ended = false;  // in order, or its connection has ended
  };
  void work();
  bool read(int rank, Link& link);  // returns false at the end of the connection
  void take(int rank, Link& link, const Frame& frame);
  void sound(const Alarm& alarm, int source);
  void send(Link& link, const Frame& frame);
  bool all_have_ended() const;

  const int rank_;
  std::mutex mutex_;  // guards what follows
  std::condition_variable changed_;
  std::map<int, Link> links_;
  std::function<void(const Alarm&)> ring_;
  std::optional<Alarm> alarm_;                                                // the first alarm
  bool has_rung_ = false, rings_ = false, finishes_ = false, stops_ = false;  // rings_: ring_ is running
  std::string phase_;                                                         // that this rank has sent
  Socket wake_;
  std::jthread thread_;
};

}  // namespace tessera
