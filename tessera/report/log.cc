#include "tessera/report/log.h"

#include <fmt/format.h>
#include <spdlog/logger.h>
#include <spdlog/sinks/base_sink.h>

#include <mutex>

#include "tessera/base/error.h"

namespace tessera {
namespace {

spdlog::level::level_enum level_of(const std::string& name) {
  for (const auto level : {spdlog::level::trace, spdlog::level::debug, spdlog::level::info, spdlog::level::warn,
                           spdlog::level::err, spdlog::level::off}) {
    if (spdlog::level::to_string_view(level) == spdlog::string_view_t(name)) return level;
  }
  throw UsageError("log level", fmt::format("unknown level \"{}\"", name),
                   "Choose one of trace, debug, info, warning, error, off");
}

const char* color_of(spdlog::level::level_enum level) {
  if (level >= spdlog::level::err) return "\x1b[1;31m";   // bold red
  if (level == spdlog::level::warn) return "\x1b[1;33m";  // bold yellow
  if (level == spdlog::level::info) return "\x1b[32m";    // green
  return "\x1b[2m";                                       // faint
}

// The console takes whole lines from any thread; the mutex here guards the formatter.
class ConsoleSink final : public spdlog::sinks::base_sink<std::mutex> {
 public:
  explicit ConsoleSink(Console& console) : console_(console) {}

 protected:
  void sink_it_(const spdlog::details::log_msg& message) override {
    spdlog::memory_buf_t buffer;
    formatter_->format(message, buffer);
    std::string line(buffer.data(), buffer.size());
    while (!line.empty() && (line.back() == '\n' || line.back() == '\r')) line.pop_back();
    if (console_.err_terminal().color && message.color_range_end > message.color_range_start) {
      line.insert(message.color_range_end, "\x1b[0m");  // the end first: it moves nothing that is still wanted
      line.insert(message.color_range_start, color_of(message.level));
    }
    console_.note(line);
  }
  void flush_() override {}

 private:
  Console& console_;
};

}  // namespace

std::shared_ptr<spdlog::logger> make_logger(const LogOptions& options, Console& console) {
  const auto level = level_of(options.level);
  auto logger = std::make_shared<spdlog::logger>("tessera", std::make_shared<ConsoleSink>(console));
  logger->set_level(level);
  logger->set_pattern(level <= spdlog::level::debug ? "%H:%M:%S.%e %^%l%$: %v" : "%^%l%$: %v");
  return logger;
}

}  // namespace tessera
