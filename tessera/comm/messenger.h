// Messages between the processes of a run. Collectives, groups and worlds are the same for every kind of messenger:
// MPI (mpi/) and TCP connections (tcp/).
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "tessera/base/error.h"

namespace tessera {

// A message failed, because the connection to a peer failed.
struct MessageFailure {
  int peer;          // its rank in the channel
  std::string what;  // completes "<names of ranks> …"
};

// Messages that a rank sends and receives at the same time. The memory of a message must exist until the message is
// done or the batch is destroyed. The destructor gives up messages that are not done. The channel is then unusable,
// because a peer may still send data that this rank no longer expects.
class MessageBatch {
 public:
  using Clock = std::chrono::steady_clock;

  virtual ~MessageBatch() = default;
  // Messages from one rank to another arrive in the order of the calls, and have the lengths that the receiver expects.
  virtual void send(int peer, const std::byte* data, int64_t bytes) = 0;
  virtual void receive(int peer, std::byte* data, int64_t bytes) = 0;
  // Waits until all messages of the batch are done, but not longer than until `end`. Returns the peers whose messages
  // are not done by then, in ascending order. Calls `sleeps` once, before it sleeps for the first time. Throws
  // MessageFailure.
  virtual std::vector<int> wait(Clock::time_point end, const std::function<void()>& sleeps) = 0;
};

// Messages among some ranks of a run. They are independent of the messages of other channels. Only one thread at a time
// may use a channel. Batches must be destroyed before their channel.
class Channel {
 public:
  virtual ~Channel() = default;
  virtual std::unique_ptr<MessageBatch> make_batch() = 0;
};

// A failure of another rank, as an alarm reports it.
struct Alarm {
  int rank;
  ExitCode code;
  std::string error;
  bool is_lost;  // the rank did not report: its process or its node is gone
};

class Messenger {
 public:
  virtual ~Messenger() = default;
  virtual int rank() const = 0;
  virtual int size() const = 0;
  // What the messages go through: "Open MPI 4.1.4", "TCP".
  virtual std::string name() const = 0;

  // Opens a channel among `members`, which are ranks of the run. A peer in the channel is an index of this list. All
  // members must call this function with the same list and the same number. Two channels of a rank must have different
  // numbers. Waits for the other members. Throws CommunicationError.
  virtual std::unique_ptr<Channel> open(int number, const std::vector<int>& members) = 0;

  // Waits until all ranks have called finish(), or are gone. Only the destructor may follow.
  virtual void finish() = 0;
  // Ends the processes of all other ranks if the messenger can do this, and possibly also this process.
  virtual void end_others(ExitCode code);

  // ---- Alarms. A messenger without alarms ignores these calls: mpirun and srun end all ranks when one rank ends.

  // From now on, calls `ring` once, on a thread of its own, when another rank calls raise() or is gone. An empty
  // function ends this. Waits for a call that is running.
  virtual void watch(std::function<void(const Alarm&)> ring);
  // Informs the other ranks that this rank fails.
  virtual void raise(ExitCode code, const std::string& error);
  // Informs the rank that reports a loss of this rank about the phase of this rank.
  virtual void enter_phase(const char* phase);
};

}  // namespace tessera
