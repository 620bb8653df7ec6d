// Arguments of other trainers (the Hugging Face Trainer, TRL, PEFT, bitsandbytes) that are no settings of Tessera.
#pragma once

#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Such an argument, with the values that mean what Tessera does anyway. The answer says what Tessera does instead.
struct ForeignArgument {
  const char* name;      // in snake_case
  bool is_flag;          // true or false; on a command line, the value may be missing, which means true
  const char* accepted;  // lower case, separated by blanks; "*": every value
  const char* answer;
};

// The argument with this name, with dashes or underscores, or nullptr.
const ForeignArgument* find_foreign_argument(std::string_view word);

// Returns a warning that the argument has no effect, and why. Throws UsageError with `where` and the answer if Tessera
// does something else than this value asks for. `value`: as on a command line.
std::string note_of_foreign(const ForeignArgument& argument, std::string_view value, const std::string& where);

}  // namespace tessera
