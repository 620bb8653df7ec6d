// Makes regular expressions of tokenizers independent of the Unicode version of the installed Oniguruma.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Returns the pattern with code points instead of \w, \W, \d, \D and general categories (\p{L}, \P{Nd}, \p{^Letter}).
// Scripts and other properties, brackets such as [:alpha:], \b and \B stay as they are.
std::string with_code_points(std::string_view pattern);

}  // namespace tessera
