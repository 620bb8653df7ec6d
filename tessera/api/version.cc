#include <tessera/version.h>

namespace tessera::v0 {

const char* version() noexcept {
  return TESSERA_VERSION_STRING;
}

}  // namespace tessera::v0
