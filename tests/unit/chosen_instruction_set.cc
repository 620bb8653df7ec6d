// Lets a test program use the instruction set that the variable TESSERA_TEST_INSTRUCTION_SET names. If this machine
// cannot run it, the program ends with exit code 77, which ctest reports as skipped.
#include <algorithm>
#include <cstdio>
#include <cstdlib>

#include "tessera/base/instruction_sets.h"

namespace {

const bool is_chosen = [] {
  const char* const name = std::getenv("TESSERA_TEST_INSTRUCTION_SET");
  if (!name) return false;
  const auto usable = tessera::usable_instruction_sets();
  const auto found = std::ranges::find(usable, name);
  if (found == usable.end()) {
    std::fprintf(stderr, "this machine or this build lacks %s\n", name);
    std::exit(77);
  }
  tessera::choose_instruction_set(static_cast<int>(found - usable.begin()));
  return true;
}();

}  // namespace
