// A call of the library: what leaves it are the program's own exceptions, and tessera::v0::Error. Its messages go to
// the program's Log.
#pragma once

#include <exception>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <thread>
#include <type_traits>
#include <utility>
#include <vector>

#include <tessera/log.h>

#include "tessera/base/library.h"
#include "tessera/log/console.h"

namespace tessera::v0 {

// The exception of a callback on its way through the rooms. It is no std::exception, so no room takes it for its own.
struct CallbackFailure {
  std::exception_ptr failure;
};

// Calls a function of the program.
template <typename Function, typename... Arguments>
decltype(auto) call_back(const Function& function, Arguments&&... arguments) {
  try {
    return function(std::forward<Arguments>(arguments)...);
  } catch (...) {
    throw CallbackFailure{std::current_exception()};
  }
}

// The messages of some calls.
class Messages {
 public:
  explicit Messages(Log log) : log_(std::move(log)) {}

  // A console that prints to the Log. It refers to this object.
  Console console();

  // This thread gets the messages from now on. Called at the begin and the end of a call.
  void begin_call();
  void end_call();

 private:
  struct Message {
    LogLevel level;
    std::string text;
  };
  void add(LogLevel level, std::string_view text);
  void deliver();

  const Log log_;
  std::mutex mutex_;  // guards the members below
  std::thread::id owner_ = std::this_thread::get_id();
  std::vector<Message> waiting_;  // of other threads
};

// Throws the exception being handled as the program sees it.
[[noreturn]] void rethrow_for_program();

// Runs the work of a call.
template <typename Work>
auto guarded(Messages& messages, const Work& work) -> std::invoke_result_t<Work> {
  become_library();
  try {
    messages.begin_call();
    if constexpr (std::is_void_v<std::invoke_result_t<Work>>) {
      work();
      messages.end_call();
      rethrow_lost_failure();
    } else {
      auto result = work();
      messages.end_call();
      rethrow_lost_failure();
      return result;
    }
  } catch (...) {
    rethrow_for_program();
  }
}
template <typename Work>
auto guarded(const Work& work) -> std::invoke_result_t<Work> {
  Messages silent(Log{});
  return guarded(silent, work);
}

}  // namespace tessera::v0
