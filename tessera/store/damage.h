// A checkpoint is damaged if one of its files is missing or has wrong content. If the operating system fails to read a
// file, this is not damage.
#pragma once

#include "tessera/base/error.h"

namespace tessera {

// A checkpoint differs from what was written: for example, a checksum does not match, or a file has the wrong size. A
// run may use an older checkpoint instead.
struct DamageError : InputError {
  using InputError::InputError;
};

// The remedy for a damaged checkpoint.
inline constexpr const char* kDamaged = "The checkpoint is damaged or incomplete: use an earlier one";

}  // namespace tessera
