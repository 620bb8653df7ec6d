#include "tessera/base/error.h"

#include <cstdio>
#include <cstdlib>

namespace tessera {

static std::string compose(const std::string& where, const std::string& what, const std::string& remedy) {
  std::string text;
  if (!where.empty()) text += where + ": ";
  text += what;
  if (!remedy.empty()) text += ". " + remedy;
  return text;
}

Error::Error(ExitCode code, std::string where, std::string what, std::string remedy)
    : std::runtime_error(compose(where, what, remedy)), code_(code) {}

std::string json_reason(std::string_view message) {
  constexpr size_t kLongest = 240;
  if (const size_t code = message.find("] "); code != message.npos) message.remove_prefix(code + 2);
  if (message.size() <= kLongest) return std::string(message);
  size_t end = kLongest;
  while (end > 0 && (static_cast<unsigned char>(message[end]) & 0xC0) == 0x80) --end;  // between characters
  return std::string(message.substr(0, end)) + "…";
}

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tessera: assertion failed at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace tessera
