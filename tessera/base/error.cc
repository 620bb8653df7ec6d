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

void assertion_failed(const char* condition, const char* file, int line) {
  std::fprintf(stderr, "tessera: assertion failed at %s:%d: %s\n", file, line, condition);
  std::abort();
}

}  // namespace tessera
