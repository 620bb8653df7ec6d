// The instruction sets that the program has vector code for, and the one that it uses: vector code is compiled once for
// each set of the build (cmake/instruction_sets.cmake). Sets of x86-64 have the names of the levels of the x86-64
// psABI: x86-64-v2 has SSE4.2, x86-64-v3 has AVX2 and FMA, x86-64-v4 has AVX-512.
#pragma once

#include <string>
#include <vector>

// The name of a function of vector code in the object of its instruction set: NAME_x86_64_v3.
#define TESSERA_JOIN_NAMES_OF(name, set) name##_##set
#define TESSERA_JOIN_NAMES(name, set) TESSERA_JOIN_NAMES_OF(name, set)
#define TESSERA_OF_INSTRUCTION_SET(name) TESSERA_JOIN_NAMES(name, TESSERA_INSTRUCTION_SET)

namespace tessera {

// The names of the sets that the program has code for, from old to new.
std::vector<std::string> built_instruction_sets();
// Those of them that this machine can run. Each can run the previous ones, too.
std::vector<std::string> usable_instruction_sets();

// The position in built_instruction_sets() of the set that the vector code uses: by default, the newest one that this
// machine can run. Throws RunError if the machine can run none.
int chosen_instruction_set();
std::string name_of_chosen_instruction_set();
// Sets the position for the complete process. Kernels that exist keep their set. The set must be usable.
void choose_instruction_set(int position);

}  // namespace tessera
