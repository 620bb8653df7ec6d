// The signals that a process passes on to the processes that it has started.
#pragma once

#include <csignal>

namespace tessera {

// Receives SIGCHLD and the signals to forward (SIGTERM, SIGINT, SIGHUP, SIGUSR1 and SIGUSR2). While the object exists,
// these signals are blocked, and the object reads them from a descriptor. Exception: if parent_ignores()
// (launch/surroundings.h) returns true for a signal, the object does not change how the process treats this signal.
class ForwardedSignals {
 public:
  ForwardedSignals();
  ~ForwardedSignals();
  ForwardedSignals(const ForwardedSignals&) = delete;
  ForwardedSignals& operator=(const ForwardedSignals&) = delete;

  int descriptor() const { return descriptor_; }    // readable when a signal has arrived; for poll()
  int next();                                       // takes a signal that has arrived, returns its number; 0: none
  int wait(double seconds);                         // like next(), but ignores SIGCHLD and waits up to `seconds`
  const sigset_t& usual() const { return usual_; }  // the signal mask before construction

 private:
  sigset_t usual_;
  int descriptor_;
};

}  // namespace tessera
