// The loss of the model's head, and argmax over the vocabulary.
#include <cmath>
#include <limits>

#include "tessera/base/math.h"
#include "tessera/ops/cpu/cpu_kernels.h"
#include "tessera/ops/cpu/dispatch.h"
#include "tessera/ops/cpu/vector_math.h"

namespace tessera::cpu {

namespace {

// Columns per chunk. A chunk stays in L1 between the pass for its maximum and the pass for its sum. Chunks are combined
// in order, so results do not depend on which thread computed which chunk.
constexpr int64_t kChunk = 8192;

template <typename T>
T max_of(const T* x, int64_t count) {
  T most = -std::numeric_limits<T>::infinity();
#pragma omp simd reduction(max : most)
  for (int64_t i = 0; i < count; ++i) most = most < x[i] ? x[i] : most;
  return most;
}

// The maximum of some values x, and the sum of exp(x − max).
struct LogSumExp {
  double max = -std::numeric_limits<double>::infinity(), sum = 0;
  void add(const LogSumExp& other) {
    const double most = std::max(max, other.max);
    if (most == -std::numeric_limits<double>::infinity()) {
      sum += other.sum;  // 0, or NaN if an x is NaN
      return;
    }
    sum = sum * std::exp(max - most) + other.sum * std::exp(other.max - most);
    max = most;
  }
  double value() const { return max + std::log(sum); }
};

template <typename T>
LogSumExp log_sum_exp_of(const T* x, int64_t count) {
  const T most = max_of(x, count);
  const T shift = most == -std::numeric_limits<T>::infinity() ? T(0) : most;  // −∞ − −∞ would be NaN
  double sum = 0;
#pragma omp simd reduction(+ : sum)
  for (int64_t i = 0; i < count; ++i) sum += static_cast<double>(exp(x[i] - shift));
  return {static_cast<double>(most), sum};
}

// x = softmax · scale
template <typename T>
void softmax_in_place(T* x, int64_t count, T log_sum_exp, T scale) {
#pragma omp simd
  for (int64_t i = 0; i < count; ++i) x[i] = exp(x[i] - log_sum_exp) * scale;
}

// Returns the loss of one row of logits, x. If d_scale is not 0, overwrites x with the loss's gradient times d_scale.
// `for_chunks(body)` calls body(i) for every chunk of the row. `partial` has room for one entry per chunk.
template <typename T, typename ForChunks>
double row_loss(T* x, int64_t vocabulary, int32_t target, double d_scale, LogSumExp* partial, ForChunks&& for_chunks) {
  auto length = [&](int64_t chunk) { return std::min(kChunk, vocabulary - chunk * kChunk); };
  for_chunks([&](int64_t chunk) { partial[chunk] = log_sum_exp_of(x + chunk * kChunk, length(chunk)); });
  LogSumExp all;
  for (int64_t chunk = 0; chunk * kChunk < vocabulary; ++chunk) all.add(partial[chunk]);
  const double log_sum_exp = all.value(), loss = log_sum_exp - static_cast<double>(x[target]);
  if (d_scale != 0) {
    for_chunks([&](int64_t chunk) {
      softmax_in_place(x + chunk * kChunk, length(chunk), static_cast<T>(log_sum_exp), static_cast<T>(d_scale));
    });
    x[target] -= static_cast<T>(d_scale);
  }
  return loss;
}

}  // namespace

void CpuKernels::softmax_cross_entropy(View logits, View targets, double d_scale, View loss) {
  const int64_t rows = targets.num_elems(), vocabulary = logits.shape[1];
  const int64_t num_chunks = ceil_divide(vocabulary, kChunk);
  TESSERA_ASSERT(logits.shape[0] == rows && num_chunks <= Team::scratch_elems<LogSumExp>() / 2);
  const int32_t* target = targets.as<int32_t>();
  // Processes rows in waves. The losses of a wave fit into half of the scratch. They are added in the order of the
  // rows.
  constexpr int64_t kWave = Team::scratch_elems<double>() / 2;
  double* const row_losses = team_.scratch<double>(0) + kWave;
  double total = 0;
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    auto row = [&](int64_t i, LogSumExp* partial, auto&& for_chunks) {
      TESSERA_ASSERT(target[i] >= 0 && target[i] < vocabulary);
      row_losses[i % kWave] =
          row_loss(logits.as<T>() + i * vocabulary, vocabulary, target[i], d_scale, partial, for_chunks);
    };
    for (int64_t first = 0; first < rows; first += kWave) {
      const int64_t count = std::min(kWave, rows - first);
      if (rows >= team_.num_threads()) {  // one thread per row: the row stays in L2 between loss and gradient
        team_.for_each(count, [&](int64_t thread, int64_t i) {
          row(first + i, team_.scratch<LogSumExp>(thread), [&](auto&& body) {
            for (int64_t chunk = 0; chunk < num_chunks; ++chunk) body(chunk);
          });
        });
      } else {
        for (int64_t i = 0; i < count; ++i) {
          row(first + i, team_.scratch<LogSumExp>(0),
              [&](auto&& body) { team_.for_each(num_chunks, [&](int64_t, int64_t chunk) { body(chunk); }); });
        }
      }
      for (int64_t i = 0; i < count; ++i) total += row_losses[i];
    }
  });
  *loss.as<double>() += total;
}

void CpuKernels::argmax_rows(View logits, View ids) {
  const int64_t rows = ids.num_elems(), vocabulary = logits.shape[1];
  const int64_t num_chunks = ceil_divide(vocabulary, kChunk);
  TESSERA_ASSERT(logits.shape[0] == rows);
  with_float_type(logits.dtype, [&](auto zero) {
    using T = decltype(zero);
    TESSERA_ASSERT(num_chunks <= Team::scratch_elems<T>());
    const int64_t wave = Team::scratch_elems<T>() / num_chunks;  // number of rows whose maxima fit into the scratch
    T* const maxima = team_.scratch<T>(0);                       // [wave, num_chunks]
    for (int64_t first = 0; first < rows; first += wave) {
      const int64_t count = std::min(wave, rows - first);
      const T* const of_rows = logits.as<T>() + first * vocabulary;
      team_.for_each(count * num_chunks, [&](int64_t, int64_t i) {
        const int64_t begin = i % num_chunks * kChunk;
        maxima[i] = max_of(of_rows + i / num_chunks * vocabulary + begin, std::min(kChunk, vocabulary - begin));
      });
      for (int64_t row = 0; row < count; ++row) {
        const T* row_maxima = maxima + row * num_chunks;
        const int64_t chunk = std::max_element(row_maxima, row_maxima + num_chunks) - row_maxima;
        const T* begin = of_rows + row * vocabulary + chunk * kChunk;
        const T* end = begin + std::min(kChunk, vocabulary - chunk * kChunk);
        const T* found = std::find(begin, end, row_maxima[chunk]);
        ids.as<int32_t>()[first + row] = static_cast<int32_t>(chunk * kChunk + (found == end ? 0 : found - begin));
      }
    }
  });
}

}  // namespace tessera::cpu
