#include "tessera/report/console.h"

#include <sys/ioctl.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "tessera/base/error.h"

namespace tessera {
namespace {

constexpr int kUsualColumns = 80;
constexpr std::string_view kEraseLine = "\r\x1b[K";  // to the first column; erase to the end (ECMA-48 EL)

int columns_of(int descriptor) {
  winsize size{};
  const bool known = ::ioctl(descriptor, TIOCGWINSZ, &size) == 0 && size.ws_col > 0;
  return known ? size.ws_col : kUsualColumns;
}

bool write_now(std::FILE* file, std::string_view text) {
  return std::fwrite(text.data(), 1, text.size(), file) == text.size() && std::fflush(file) == 0;
}

void write_result(std::string_view text) {
  if (!write_now(stdout, text))
    throw RunError("standard output", std::string("cannot write to it: ") + std::strerror(errno));
}

}  // namespace

Terminal describe_terminal(bool is_tty, const std::function<const char*(const char*)>& env) {
  const auto value = [&](const char* name) -> std::string {
    const char* text = env(name);
    return text ? text : "";
  };
  const std::string term = value("TERM");
  if (!is_tty || term.empty() || term == "dumb") return {};
  // The first of these that is set and not empty names the locale of characters (POSIX, 8.2).
  std::string locale;
  for (const char* name : {"LC_ALL", "LC_CTYPE", "LANG"}) {
    if (locale.empty()) locale = value(name);
  }
  std::transform(locale.begin(), locale.end(), locale.begin(), [](unsigned char c) { return std::tolower(c); });
  const bool utf8 = locale.find("utf-8") != locale.npos || locale.find("utf8") != locale.npos;
  return {.interactive = true, .color = value("NO_COLOR").empty(), .unicode = utf8};
}

Console Console::of_process(std::optional<bool> bars) {
  const auto env = [](const char* name) -> const char* { return std::getenv(name); };
  const auto columns = [](int descriptor) { return [descriptor] { return columns_of(descriptor); }; };
  Terminal err = describe_terminal(::isatty(STDERR_FILENO), env);
  err.interactive = bars.value_or(err.interactive);
  return Console(
      {describe_terminal(::isatty(STDOUT_FILENO), env), write_result, columns(STDOUT_FILENO)},
      {err, [](std::string_view text) { static_cast<void>(write_now(stderr, text)); }, columns(STDERR_FILENO)});
}

Console Console::muted() {
  const auto nowhere = [] { return Stream{{}, [](std::string_view) {}, [] { return kUsualColumns; }}; };
  return Console(nowhere(), nowhere());
}

void Console::print(std::string_view line) {
  write_above_status(out_, line);
}

void Console::note(std::string_view line) {
  write_above_status(err_, line);
}

void Console::write_above_status(const Stream& stream, std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (!status_.empty()) err_.write(kEraseLine);
  stream.write(std::string(line) + "\n");
  if (!status_.empty()) err_.write(status_);
}

void Console::show_status(std::string_view line) {
  const std::lock_guard lock(mutex_);
  if (!err_.terminal.interactive) return;
  status_ = line;
  err_.write("\r" + status_ + "\x1b[K");  // in one piece and over the old line, so that nothing flickers
}

void Console::clear_status() {
  const std::lock_guard lock(mutex_);
  if (!status_.empty()) err_.write(kEraseLine);
  status_.clear();
}

}  // namespace tessera
