// Damage: what is wrong with a file itself, as against a failure to read it.
#pragma once

#include "tessera/base/error.h"

namespace tessera {

// A checkpoint that is not what was written: a failed checksum, a bad manifest, a wrong size, a missing file. A run may
// use an older checkpoint instead. Any other error while a checkpoint is read says nothing about its content.
struct DamageError : InputError {
  using InputError::InputError;
};

}  // namespace tessera
