// NumPy's random permutation, to select the same rows as Dataset.shuffle(seed) of Hugging Face datasets.
#pragma once

#include <cstdint>
#include <vector>

namespace tessera {

// Returns the result of numpy.random.default_rng(seed).permutation(size) in NumPy 1.18 to 2.4. 0 <= size < 2^32.
std::vector<int64_t> numpy_permutation(int64_t size, uint64_t seed);

}  // namespace tessera
