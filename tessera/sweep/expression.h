// Integer arithmetic over the settings of a run: "500 * nproc", "3 * (nproc + 1) / 2".
#pragma once

#include <cstdint>
#include <functional>
#include <string>

namespace tessera {

// Evaluates an expression of whole numbers, names, + - * / and parentheses, from left to right with the usual
// precedence. `value_of` returns the value of a name and throws if it does not know the name. Throws UsageError with
// `where` and the text if the text is not an expression or is nested too deeply, a division has a remainder or divides
// by zero, or a value does not fit into 64 bits.
int64_t evaluate(const std::string& text, const std::function<int64_t(const std::string&)>& value_of,
                 const std::string& where);

}  // namespace tessera
