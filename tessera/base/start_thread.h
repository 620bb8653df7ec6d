// Starts threads. All threads of the program start here, so the user gets an error if the system refuses a thread.
#pragma once

#include <signal.h>

#include <concepts>
#include <system_error>
#include <thread>
#include <utility>

namespace tessera {

namespace thread_start {

// While the object exists, this thread blocks all signals except those of its own faults, such as SIGSEGV. A thread
// that starts meanwhile inherits this mask.
class SignalBlock {
 public:
  SignalBlock();
  ~SignalBlock();
  SignalBlock(const SignalBlock&) = delete;
  SignalBlock& operator=(const SignalBlock&) = delete;

 private:
  sigset_t before_;
};

[[noreturn]] void refuse(const char* purpose, const std::system_error& error);
// Reports the exception being handled, and ends the process with its exit code. In a library (library.h), keeps the
// exception instead.
void fail() noexcept;

}  // namespace thread_start

// Starts a thread that calls `work`, with or without a std::stop_token. `purpose` completes "cannot start a thread for
// …". The thread blocks all signals, so other threads handle them. If an exception leaves `work`, the process ends with
// the message and the exit code of this exception, as it does for the main thread. In a library, the thread ends, and
// rethrow_lost_failure() throws the exception (library.h). Throws RunError if the system starts no thread: the number
// of processes or the memory is limited.
template <typename Work>
std::jthread start_thread(const char* purpose, Work work) {
  const thread_start::SignalBlock block;
  try {
    return std::jthread([work = std::move(work)](const std::stop_token& stop) mutable {
      try {
        if constexpr (std::invocable<Work&, const std::stop_token&>) {
          work(stop);
        } else {
          work();
        }
      } catch (...) {
        thread_start::fail();
      }
    });
  } catch (const std::system_error& error) {
    thread_start::refuse(purpose, error);
  }
}

}  // namespace tessera
