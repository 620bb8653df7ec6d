// The 256 values of bitsandbytes' dynamic 8-bit types (create_dynamic_map in bitsandbytes/functional.py), ascending.
// The distances between neighbours grow with their magnitude, like those of floating-point numbers.
#pragma once

#include <array>

namespace tessera {

// `is_signed`: −1 to 1 with one zero. Otherwise 0 to 1.
const std::array<float, 256>& dynamic_map(bool is_signed);

}  // namespace tessera
