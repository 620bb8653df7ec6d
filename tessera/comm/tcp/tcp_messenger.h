// Messages through TCP connections between all ranks. Needs no other program than the ranks themselves.
#pragma once

#include <functional>
#include <memory>
#include <string>

#include "tessera/comm/meeting_point.h"
#include "tessera/comm/messenger.h"

namespace tessera {

struct TcpOptions {
  double timeout_s = 600;  // the longest wait for all ranks at the start, and for a channel
  // What is known about the ranks of this machine that have not arrived, for errors. May be empty.
  std::function<std::string()> missing{};
  std::function<void(const std::string&)> log{};  // prints a line for the user
};

// Connects rank `rank` with the other ranks. Throws UsageError if processes of the run contradict each other, and
// CommunicationError if not all ranks arrive in time. The error names the missing ranks.
std::unique_ptr<Messenger> make_tcp_messenger(int rank, int size, const MeetingPoint& meeting,
                                              const TcpOptions& options);

}  // namespace tessera
