// Checks whether a program has code for a GPU.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>

namespace tessera {

// Returns true if a program has code only for GPUs that are newer than a given GPU. `capability`: the compute
// capability of the given GPU, times 10. For example, 90 stands for capability 9.0. `architectures`: the architectures
// that the program was built for, for example "80 90-real". Returns false if a word of `architectures` does not start
// with a number.
inline bool has_no_code_for(int capability, const std::string& architectures) {
  std::istringstream list(architectures);
  int lowest = 0;
  for (std::string word; list >> word;) {
    const int one = std::atoi(word.c_str());
    if (one == 0) return false;
    lowest = lowest ? std::min(lowest, one) : one;
  }
  return capability < lowest;
}

}  // namespace tessera
