// Errors that a user can meet, each with the exit code of the process.
#pragma once

#include <cstddef>
#include <stdexcept>
#include <string>
#include <string_view>

namespace tessera {

// Exit codes of the `tessera` program. If a second signal ends the run immediately, the exit code is 128 + the number
// of this signal.
enum class ExitCode : int {
  kDone = 0,
  kRunFailed = 1,          // failure at run time
  kUsage = 2,              // wrong usage or configuration
  kBadInput = 3,           // bad input file: data, model, tokenizer, checkpoint
  kOutOfMemory = 4,        // predicted or real
  kCommunication = 5,      // communication failed or timed out
  kSavedAfterSignal = 75,  // a signal stopped the run; if training had begun, the run saved a checkpoint
  kOutputClosed = 141,     // 128 + SIGPIPE: the reader of standard output has closed it; no message is printed
};

// Base of every error that is reported to the user as "error: <where>: <what>. <remedy>".
//   where   the file and line, key, flag or tensor at fault; may be empty
//   what    what is wrong, with the offending value
//   remedy  what the user can do; may be empty
class Error : public std::runtime_error {
 public:
  Error(ExitCode code, std::string where, std::string what, std::string remedy);
  ExitCode code() const { return code_; }
  const std::string& where() const { return where_; }

 private:
  ExitCode code_;
  std::string where_;
};

struct RunError : Error {
  RunError(std::string where, std::string what, std::string remedy = "")
      : Error(ExitCode::kRunFailed, std::move(where), std::move(what), std::move(remedy)) {}
};
struct UsageError : Error {
  UsageError(std::string where, std::string what, std::string remedy = "")
      : Error(ExitCode::kUsage, std::move(where), std::move(what), std::move(remedy)) {}
};
struct InputError : Error {
  InputError(std::string where, std::string what, std::string remedy = "")
      : Error(ExitCode::kBadInput, std::move(where), std::move(what), std::move(remedy)) {}
};
struct OutOfMemoryError : Error {
  OutOfMemoryError(std::string where, std::string what, std::string remedy = "")
      : Error(ExitCode::kOutOfMemory, std::move(where), std::move(what), std::move(remedy)) {}
};
struct OutputClosedError : Error {
  OutputClosedError() : Error(ExitCode::kOutputClosed, "standard output", "is closed", "") {}
};
struct CommunicationError : Error {
  CommunicationError(std::string where, std::string what, std::string remedy = "")
      : Error(ExitCode::kCommunication, std::move(where), std::move(what), std::move(remedy)) {}
};

// Whether this errno of a failed call on a file means that its path is wrong: nothing is there, a name is too long, the
// kind of file is wrong, or a permission is missing. Otherwise the disk, the file server or a limit is the reason.
bool is_wrong_path(int error);

// An exception as the user sees it.
struct Failure {
  ExitCode code;
  std::string text;
  std::string where{};  // what is at fault: a file and line, key, flag or tensor. The text begins with it. May be empty
};
// Describes the exception being handled. Call it in a catch block.
Failure current_failure();

// Returns `text` in a form that is safe for messages: each control character becomes '?'. A text longer than
// `longest_bytes` bytes is cut to at most this length, at a character boundary. Then "…" is appended.
std::string printable(std::string_view text, size_t longest_bytes = 100);

// Reports a programming error: prints the file, the line and the condition, and aborts. In a library (library.h),
// throws std::logic_error instead. TESSERA_ASSERT works in every build, also in release builds.
[[noreturn]] void assertion_failed(const char* condition, const char* file, int line);
#define TESSERA_ASSERT(condition) \
  ((condition) ? static_cast<void>(0) : ::tessera::assertion_failed(#condition, __FILE__, __LINE__))

}  // namespace tessera
