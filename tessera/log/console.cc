#include "tessera/log/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <memory>

#include "tessera/base/error.h"
#include "tessera/base/text.h"
#include "tessera/log/stream_writer.h"

namespace tessera {
namespace {

constexpr int kUsualColumns = 80;
constexpr std::string_view kEraseLine = "\r\x1b[K";  // moves to the first column and erases the line (ECMA-48 EL)

int columns_of(int descriptor) {
  winsize size{};
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

std::string text_of_failure(int cause) {
  return std::string("cannot write to it: ") + std::strerror(cause);
}

// For verbs that only print. If a write fails, the user gets no result, so the failure is an error.
void write_result(StreamWriter& out, std::string_view text) {
  const int failure = out.write(text);
  if (failure == EPIPE) throw OutputClosedError();
  if (failure != 0) throw RunError("standard output", text_of_failure(failure));
}

}  // namespace

Terminal describe_terminal(bool is_tty, const std::function<const char*(const char*)>& env) {
  const auto value = [&](const char* name) -> std::string {
    const char* text = env(name);
    return text ? text : "";
  };
  const std::string term = value("TERM");
  if (!is_tty || term.empty() || term == "dumb") return {};
  // The first of these variables that is set and not empty determines the encoding (POSIX, 8.2).
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (locale.empty()) locale = value(name);
  }
  locale = lower(locale);
  const bool utf8 = locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
  return {.interactive = true, .color = value("NO_COLOR").empty(), .unicode = utf8};
}

Console Console::of_process(std::optional<bool> bars, LostOutput lost_output) {
  const auto env = [](const char* name) -> const char* { return std::getenv(name); };
  const auto columns = [](int descriptor) { return [descriptor] { return columns_of(descriptor); }; };
  Terminal err = describe_terminal(::isatty(STDERR_FILENO), env);
  err.interactive = bars.value_or(err.interactive);
  const auto errors = std::make_shared<StreamWriter>(STDERR_FILENO),
             out = std::make_shared<StreamWriter>(STDOUT_FILENO);
  const auto print = [lost_output, out, errors, is_lost = false](std::string_view text) mutable {
    if (lost_output == LostOutput::ends_the_verb) return write_result(*out, text);
    const int failure = out->write(text);
    if (failure == 0 || std::exchange(is_lost, true)) return;
    errors->write("warning: standard output: " + text_of_failure(failure) +
                  ". The run continues, but standard output is incomplete\n");
  };
  return Console({describe_terminal(::isatty(STDOUT_FILENO), env), print, columns(STDOUT_FILENO)},
                 {err, [errors](std::string_view text) { errors->write(text); }, columns(STDERR_FILENO)});
}

Console Console::muted() {
  const auto nowhere = [] { return Output{{}, [](std::string_view) {}, [] { return kUsualColumns; }}; };
  return Console(nowhere(), nowhere());
}

void Console::print(std::string_view line) {
  write_above_status(out_, line);
}

void Console::print_part(std::string_view text) {
  const std::lock_guard lock(mutex_);
  TESSERA_ASSERT(status_.empty());
  if (!text.empty()) out_.write(text);
}

void Console::note(std::string_view line) {
  write_above_status(err_, line);
}

void Console::write_above_status(const Output& output, std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (!status_.empty()) err_.write(kEraseLine);
  output.write(std::string(line) + "\n");
  if (!status_.empty()) err_.write(status_);
}

void Console::show_status(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (!err_.terminal.interactive) return;
  status_ = line;
  err_.write("\r" + status_ + "\x1b[K");  // overwrites the old line in one write, which prevents flicker
}

void Console::clear_status() {
  const std::lock_guard lock(mutex_);
  if (!status_.empty()) err_.write(kEraseLine);
  status_.clear();
}

}  // namespace tessera
