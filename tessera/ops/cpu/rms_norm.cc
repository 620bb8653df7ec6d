#include "tessera/ops/cpu/rms_norm.h"

#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/row_sums.h"

namespace tessera::cpu {

void CpuKernels::rms_norm_forward(const NormForward& call) {
  constexpr int64_t kGrainRows = 4;
  const int64_t rows = call.x.shape[0], channels = call.x.shape[1];
  TESSERA_ASSERT(call.y.shape == call.x.shape && call.weight.num_elems() == channels);
  TESSERA_ASSERT(!call.bias && (!call.stats || call.stats.shape == (Shape{rows, 1})));
  with_float_type(call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    team_.for_ranges(rows, kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* x_row = call.x.as<T>() + row * channels;
        const T row_rstd = rms_rstd(x_row, channels, static_cast<T>(call.epsilon));
        rms_scale(x_row, call.weight.as<T>(), channels, row_rstd, call.y.as<T>() + row * channels);
        if (call.stats) call.stats.as<T>()[row] = row_rstd;
      }
    });
  });
}

void CpuKernels::rms_norm_backward(const NormBackward& call) {
  const int64_t rows = call.x.shape[0], channels = call.x.shape[1];
  TESSERA_ASSERT(call.d_y.shape == call.x.shape && call.d_x.shape == call.x.shape &&
                 call.weight.num_elems() == channels);
  TESSERA_ASSERT(call.stats.shape == (Shape{rows, 1}) && (!call.residual || call.residual.shape == call.x.shape));
  TESSERA_ASSERT(call.d_weight.num_elems() == channels && (!call.y || call.y.shape == call.x.shape));
  TESSERA_ASSERT(!call.bias && !call.d_bias);
  with_float_type(call.x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto add_block = [&](int64_t first, int64_t end, T* sums) {
      for (int64_t row = first; row < end; ++row) {
        const int64_t at = row * channels;
        const T row_rstd = call.stats.as<T>()[row];
        rms_backward(call.d_y.as<T>() + at, call.x.as<T>() + at, call.weight.as<T>(), row_rstd,
                     call.residual ? call.residual.as<T>() + at : nullptr, channels, call.d_x.as<T>() + at, sums);
        if (call.y) rms_scale(call.x.as<T>() + at, call.weight.as<T>(), channels, row_rstd, call.y.as<T>() + at);
      }
    };
    sum_in_blocks<T>(team_, rows, channels, add_block, [&](int64_t begin, int64_t end, const T* sums) {
      add_elements(sums, begin, end, call.d_weight.as<T>());
    });
  });
}

}  // namespace tessera::cpu
