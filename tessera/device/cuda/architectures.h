// The GPUs that a program holds code for.
#pragma once

#include <algorithm>
#include <cstdlib>
#include <sstream>
#include <string>

namespace tessera {

// Whether a GPU (90 of compute capability 9.0) is older than all that a program built for `architectures` ("80 90-real")
// holds code for; false where these are not given in numbers.
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
