// Rewrites regular expressions of tokenizers, because some of their character classes would depend on the Unicode
// version of the installed Oniguruma.
#pragma once

#include <string>
#include <string_view>

namespace tessera {

// Returns the pattern with lists of code points instead of \w, \W, \d, \D and general categories (\p{L}, \P{Nd},
// \p{^Letter}). Does not change scripts and other properties, brackets such as [:alpha:], \b and \B.
std::string with_code_points(std::string_view pattern);

}  // namespace tessera
