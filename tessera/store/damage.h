// Damage: something is wrong with the content of a file. A failure to read it is not damage.
#pragma once

#include "tessera/base/error.h"

namespace tessera {

// A checkpoint differs from what was written: a failed checksum, a bad manifest, a wrong size, a missing file. A run
// may use an older checkpoint instead. Any other error during reading says nothing about the content.
struct DamageError : InputError {
  using InputError::InputError;
};

// The remedy for a damaged checkpoint.
inline constexpr const char* kDamaged = "The checkpoint is damaged or incomplete: use an earlier one";

}  // namespace tessera
