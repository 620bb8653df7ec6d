/// @file
/// The messages of the library. Without a Log, the library prints nothing.
#pragma once

#include <functional>
#include <string_view>

#include <tessera/export.h>

TESSERA_BEGIN_NAMESPACE

/// What the program `tessera` would do with a message.
enum class LogLevel {
  result,   ///< print it to standard output: losses, scores, the table at the end of a run
  note,     ///< print it to standard error: what the run uses and does
  warning,  ///< print it to standard error as a warning
};

/// Receives the messages of a call: complete lines, without a newline at the end. It runs on the thread of the call.
/// A message of another thread arrives with the next message of this thread, at the latest when the call ends. It must
/// not call the model that it belongs to.
using Log = std::function<void(LogLevel level, std::string_view text)>;

TESSERA_END_NAMESPACE
