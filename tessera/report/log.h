// Log messages for people, on standard error: "warning: the text".
#pragma once

#include <memory>
#include <string>

#include "tessera/report/console.h"

namespace spdlog {
class logger;
}

namespace tessera {

struct LogOptions {
  std::string level = "info";  // the least that is shown: trace, debug, info, warning, error or off
};

// A logger that writes above the console's status line, its levels coloured where the terminal has colours; from debug
// on, each message with the time of day. Any thread may log. The console must live longer. UsageError: no such level.
// Include <spdlog/spdlog.h> to log.
std::shared_ptr<spdlog::logger> make_logger(const LogOptions& options, Console& console);

}  // namespace tessera
