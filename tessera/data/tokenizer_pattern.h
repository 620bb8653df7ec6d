// Regular expressions of tokenizers, made independent of the Unicode version of the installed Oniguruma.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// The pattern with code points in place of \p{L}, \P{Nd}, \p{^Letter}, ... (general categories), \w, \W, \d and \D.
// Scripts and other properties, brackets such as [:alpha:], \b and \B stay as they are.
std::string with_code_points(std::string_view pattern);

}  // namespace tessera
