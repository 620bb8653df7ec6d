#include "tessera/ops/cpu/rms_norm.h"

#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/row_sums.h"

namespace tessera::cpu {

void rms_norm_forward(Team& team, View x, View weight, double epsilon, View y, View rstd) {
  constexpr int64_t kGrainRows = 4;
  const int64_t rows = x.shape[0], channels = x.shape[1];
  TESSERA_ASSERT(y.shape == x.shape && weight.num_elems() == channels);
  TESSERA_ASSERT(!rstd || rstd.shape == (Shape{rows, 1}));
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    team.for_ranges(rows, kGrainRows, [&](int64_t, int64_t begin, int64_t end) {
      for (int64_t row = begin; row < end; ++row) {
        const T* x_row = x.as<T>() + row * channels;
        const T row_rstd = rms_rstd(x_row, channels, static_cast<T>(epsilon));
        rms_scale(x_row, weight.as<T>(), channels, row_rstd, y.as<T>() + row * channels);
        if (rstd) rstd.as<T>()[row] = row_rstd;
      }
    });
  });
}

void rms_norm_backward(Team& team, View d_y, View x, View weight, View rstd, View residual, View d_x, View d_weight,
                       View y) {
  const int64_t rows = x.shape[0], channels = x.shape[1];
  TESSERA_ASSERT(d_y.shape == x.shape && d_x.shape == x.shape && weight.num_elems() == channels);
  TESSERA_ASSERT(rstd.shape == (Shape{rows, 1}) && (!residual || residual.shape == x.shape));
  TESSERA_ASSERT(d_weight.num_elems() == channels && (!y || y.shape == x.shape));
  with_float_type(x.dtype, [&](auto zero) {
    using T = decltype(zero);
    const auto add_block = [&](int64_t first, int64_t end, T* sums) {
      for (int64_t row = first; row < end; ++row) {
        const int64_t at = row * channels;
        const T row_rstd = rstd.as<T>()[row];
        rms_backward(d_y.as<T>() + at, x.as<T>() + at, weight.as<T>(), row_rstd,
                     residual ? residual.as<T>() + at : nullptr, channels, d_x.as<T>() + at, sums);
        if (y) rms_scale(x.as<T>() + at, weight.as<T>(), channels, row_rstd, y.as<T>() + at);
      }
    };
    sum_in_blocks<T>(team, rows, channels, add_block, [&](int64_t begin, int64_t end, const T* sums) {
      add_elements(sums, begin, end, d_weight.as<T>());
    });
  });
}

}  // namespace tessera::cpu
