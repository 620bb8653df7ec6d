#include <tessera/error.h>

namespace tessera::v0 {

const char* name_of(ErrorKind kind) noexcept {
  switch (kind) {
    case ErrorKind::run:
      return "run";
    case ErrorKind::usage:
      return "usage";
    case ErrorKind::input:
      return "input";
    case ErrorKind::memory:
      return "memory";
    case ErrorKind::communication:
      return "communication";
  }
  return "";
}

Error::Error(ErrorKind kind, const std::string& subject, const std::string& text)
    : std::runtime_error(subject.empty() ? text : subject + ": " + text),
      kind_(kind),
      texts_(std::make_shared<const Texts>(Texts{subject, text})) {}

Error::Error(const Error&) noexcept = default;
Error& Error::operator=(const Error&) noexcept = default;
Error::~Error() = default;

}  // namespace tessera::v0
