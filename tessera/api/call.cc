#include "tessera/api/call.h"

#include <tessera/error.h>

#include "tessera/base/error.h"

namespace tessera::v0 {

namespace {

ErrorKind kind_of(ExitCode code) {
  switch (code) {
    case ExitCode::kUsage:
      return ErrorKind::usage;
    case ExitCode::kBadInput:
      return ErrorKind::input;
    case ExitCode::kOutOfMemory:
      return ErrorKind::memory;
    case ExitCode::kCommunication:
      return ErrorKind::communication;
    case ExitCode::kDone:
    case ExitCode::kRunFailed:
    case ExitCode::kSavedAfterSignal:
    case ExitCode::kOutputClosed:
      break;
  }
  return ErrorKind::run;
}

}  // namespace

void rethrow_for_program() {
  try {
    throw;
  } catch (const CallbackFailure& callback) {
    std::rethrow_exception(callback.failure);
  } catch (const Error&) {
    throw;
  } catch (...) {
    const Failure failure = current_failure();
    std::string_view text = failure.text;
    if (!failure.where.empty() && text.starts_with(failure.where + ": ")) text.remove_prefix(failure.where.size() + 2);
    throw Error(kind_of(failure.code), failure.where, std::string(text));
  }
}

Console Messages::console() {
  const auto to = [this](LogLevel level) {
    return Console::Output{{}, [this, level](std::string_view text) { add(level, text); }, [] { return 80; }};
  };
  return Console(to(LogLevel::result), to(LogLevel::note));
}

void Messages::begin_call() {
  const std::lock_guard lock(mutex_);
  owner_ = std::this_thread::get_id();
}

void Messages::end_call() {
  deliver();
}

void Messages::add(LogLevel level, std::string_view text) {
  if (!log_) return;
  constexpr std::string_view kWarning = "warning: ";
  if (level == LogLevel::note && text.starts_with(kWarning)) {
    level = LogLevel::warning;
    text.remove_prefix(kWarning.size());
  }
  if (text.ends_with('\n')) text.remove_suffix(1);
  {
    const std::lock_guard lock(mutex_);
    waiting_.push_back({level, std::string(text)});
    if (std::this_thread::get_id() != owner_) return;
  }
  deliver();
}

void Messages::deliver() {
  std::vector<Message> messages;
  {
    const std::lock_guard lock(mutex_);
    messages.swap(waiting_);
  }
  for (const Message& message : messages) call_back(log_, message.level, std::string_view(message.text));
}

}  // namespace tessera::v0
