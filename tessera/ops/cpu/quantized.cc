// Weights in NF4 (Kernels::dequantize).
#include <vector>

#include "tessera/base/nf4.h"
#include "tessera/ops/cpu/cpu_kernels.h"

namespace tessera::cpu {

void CpuKernels::dequantize(View groups, View values) {
  const int64_t n = values.num_elems();
  TESSERA_ASSERT(groups.dtype == DType::nf4 && groups.num_elems() == nf4_groups(n));
  const auto* const first = reinterpret_cast<const Nf4Group*>(groups.data);
  const View flat{values.data, values.dtype, {n}};
  team_.for_ranges(groups.num_elems(), 1, [&](int64_t, int64_t begin, int64_t end) {
    std::vector<float> weights(kNf4GroupWeights);
    for (int64_t group = begin; group < end; ++group) {
      const int64_t from = group * kNf4GroupWeights, to = std::min(n, from + kNf4GroupWeights);
      const View part = flat.rows(from, to);
      if (part.dtype == DType::f32) {
        dequantize_nf4(first, from, to, part.as<float>());
      } else {
        dequantize_nf4(first, from, to, weights.data());
        tessera::convert(weights.data(), DType::f32, part.data, part.dtype, static_cast<size_t>(to - from));
      }
    }
  });
}

}  // namespace tessera::cpu
