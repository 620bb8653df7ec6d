// Speed of the CPU's kernels at the shapes of small and medium BLOOMs: best and median of many calls, as GFLOP/s or as
// GB/s of the arrays that must be read and written. Products are compared with OpenBLAS on the same number of threads.
//   ops_bench [filter] [seconds per line]
// Shapes: N tokens, C channels. 800 × 1024 is four SQuAD prompts in bloom-560m. 2048 × 512 is four full rows of a small
// model.
#include <cblas.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <string>
#include <vector>

#include "tessera/ops/flops.h"
#include "tessera/ops/kernels.h"

namespace tessera {
namespace {

double now_s() {
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

class Bench {
 public:
  Bench(std::string filter, double seconds) : filter_(std::move(filter)), seconds_(seconds) {
    fmt::print("{:<44} {:>10} {:>10} {:>10}\n", fmt::format("{} threads", pool_.num_threads()), "median ms",
               "best rate", "median");
  }

  // `work`: 10^9 operations or bytes per call.
  void line(const std::string& name, double work, const char* unit, const std::function<void()>& call) {
    if (name.find(filter_) == std::string::npos) return;
    std::vector<double> times;
    call();
    for (const double end = now_s() + seconds_; now_s() < end || times.size() < 5;) {
      const double begin = now_s();
      call();
      times.push_back(now_s() - begin);
    }
    std::sort(times.begin(), times.end());
    const double median = times[times.size() / 2];
    fmt::print("{:<44} {:>10.3f} {:>10.1f} {:>10.1f} {}\n", name, median * 1e3, work / times[0], work / median, unit);
  }

  // Random numbers from N(0, 1), kept until the next call of clear().
  View floats(Shape shape) {
    const View view = array(shape, DType::f32);
    kernels_->fill_normal(view, 0, 1, buffers_.size(), 0, 0);
    return view;
  }
  View array(Shape shape, DType dtype) {
    buffers_.push_back(
        device_->allocate(shape.num_elems() * static_cast<int64_t>(size_of(dtype)), Category::activations));
    return buffers_.back().view(shape, dtype);
  }
  template <typename T>
  View integers(const std::vector<T>& values) {
    buffers_.push_back(device_->allocate(static_cast<int64_t>(values.size() * sizeof(T)), Category::batch));
    const View view = buffers_.back().view({static_cast<int64_t>(values.size())}, dtype_of<T>());
    device_->copy_from_host(values.data(), view);
    return view;
  }
  View sum() {
    buffers_.push_back(device_->allocate(8, Category::activations));
    const View view = buffers_.back().view({1}, DType::f64);
    kernels_->fill(view, 0);
    return view;
  }
  void clear() { buffers_.clear(); }
  int num_threads() const { return pool_.num_threads(); }
  Kernels& kernels() { return *kernels_; }

 private:
  std::string filter_;
  double seconds_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_ = make_cpu_device(pool_);
  std::unique_ptr<Kernels> kernels_ = make_kernels(*device_);
  std::vector<Buffer> buffers_;
};

// The kernels set the library to one thread. Libraries other than OpenBLAS keep that setting.
void set_blas_threads(int count) {
  if (void* function = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(function)(count);
  }
}

void linear(Bench& bench, int64_t rows, int64_t in, int64_t out) {
  Kernels& kernels = bench.kernels();
  const View x = bench.floats({rows, in}), weight = bench.floats({out, in}), bias = bench.floats({out});
  const View y = bench.floats({rows, out}), pre = bench.floats({rows, out}), pre_in = bench.floats({rows, in});
  const View d_x = bench.floats({rows, in}), d_weight = bench.floats({out, in}), residual = bench.floats({rows, out});
  const double work = static_cast<double>(linear_flops(rows, in, out)) * 1e-9;
  const std::string shape = fmt::format("{} x {} -> {}", rows, in, out);
  LinearEpilogue gelu, add;
  gelu.activation = Activation::gelu_tanh;
  add.residual = residual;
  bench.line("linear " + shape, work, "GFLOP/s", [&] { kernels.linear_forward(x, weight, {}, {}, {}, y); });
  set_blas_threads(bench.num_threads());
  bench.line("BLAS " + shape, work, "GFLOP/s", [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(rows), static_cast<int>(out),
                static_cast<int>(in), 1, x.as<float>(), static_cast<int>(in), weight.as<float>(), static_cast<int>(in),
                0, y.as<float>(), static_cast<int>(out));
  });
  set_blas_threads(1);
  bench.line("linear bias residual " + shape, work, "GFLOP/s",
             [&] { kernels.linear_forward(x, weight, bias, add, {}, y); });
  bench.line("linear bias gelu " + shape, work, "GFLOP/s",
             [&] { kernels.linear_forward(x, weight, bias, gelu, pre, y); });
  bench.line("linear d_x " + shape, work, "GFLOP/s",
             [&] { kernels.linear_backward_input(y, weight, {}, {}, d_x, {}); });
  bench.line("linear d_x gelu' " + shape, work, "GFLOP/s",
             [&] { kernels.linear_backward_input(y, weight, gelu, pre_in, d_x, {}); });
  bench.line("linear d_weight " + shape, work, "GFLOP/s",
             [&] { kernels.linear_backward_weight(y, x, false, d_weight); });
  bench.clear();
}

void attention(Bench& bench, int64_t sequences, int64_t length, int64_t heads, int64_t head_dim) {
  Kernels& kernels = bench.kernels();
  const int64_t rows = sequences * length, channels = heads * head_dim;
  const View qkv = bench.floats({rows, 3 * channels}), o = bench.floats({rows, channels});
  const View log_sum_exp = bench.floats({rows, heads}), d_o = bench.floats({rows, channels});
  const View d_qkv = bench.floats({rows, 3 * channels});
  std::vector<int32_t> starts;
  for (int64_t b = 0; b <= sequences; ++b) starts.push_back(static_cast<int32_t>(b * length));
  const View starts_view = bench.integers(starts);
  const AttentionShape shape{heads, head_dim, QkvLayout::interleaved, bench.floats({heads})};
  const double work = static_cast<double>(sequences * attention_forward_flops(length, channels)) * 1e-9;
  const std::string name = fmt::format("{} of {}, {} heads of {}", sequences, length, heads, head_dim);
  bench.line("attention " + name, work, "GFLOP/s",
             [&] { kernels.attention_forward(qkv, starts_view, shape, {}, o, log_sum_exp); });
  bench.line("attention backward " + name, 2.5 * work, "GFLOP/s",
             [&] { kernels.attention_backward(qkv, o, log_sum_exp, d_o, starts_view, shape, {}, d_qkv); });
  std::vector<int32_t> lengths(static_cast<size_t>(sequences), static_cast<int32_t>(length - 1));
  starts.pop_back();
  const View cache_starts = bench.integers(starts), lengths_view = bench.integers(lengths);
  bench.line("attention decode " + name, 8e-9 * static_cast<double>(rows * channels), "GB/s", [&] {
    kernels.attention_decode(qkv.rows(0, sequences), shape, cache_starts, lengths_view, o, d_o,
                             d_qkv.reshaped({3 * rows, channels}).rows(0, sequences));
  });
  bench.clear();
}

void rowwise(Bench& bench, int64_t rows, int64_t channels) {
  Kernels& kernels = bench.kernels();
  const View x = bench.floats({rows, channels}), y = bench.floats({rows, channels}), d = bench.floats({rows, channels});
  const View weight = bench.floats({channels}), bias = bench.floats({channels}), stats = bench.floats({rows, 2});
  const double bytes = 4e-9 * static_cast<double>(rows * channels);
  const std::string shape = fmt::format("{} x {}", rows, channels);
  bench.line("layer norm " + shape, 2 * bytes, "GB/s",
             [&] { kernels.layer_norm_forward(x, weight, bias, 1e-5, y, stats); });
  bench.line("layer norm backward " + shape, 4 * bytes, "GB/s",
             [&] { kernels.layer_norm_backward(y, x, weight, {}, stats, d, d, weight, bias, {}); });
  std::vector<int64_t> row_ids(static_cast<size_t>(rows));
  for (size_t i = 0; i < row_ids.size(); ++i) row_ids[i] = static_cast<int64_t>(i);
  const Dropout dropout{0.1f, 1, 1, bench.integers(row_ids)};
  bench.line("dropout " + shape, 2 * bytes, "GB/s", [&] { kernels.dropout_backward(x, dropout, y); });
  bench.clear();
}

void head(Bench& bench, int64_t rows, int64_t vocabulary, int64_t channels) {
  Kernels& kernels = bench.kernels();
  const View logits = bench.floats({rows, vocabulary}), loss = bench.sum();
  const double bytes = 4e-9 * static_cast<double>(rows * vocabulary);
  std::vector<int32_t> targets(static_cast<size_t>(rows), 3);
  const View target_view = bench.integers(targets);
  const std::string shape = fmt::format("{} x {}", rows, vocabulary);
  bench.line("cross-entropy " + shape, 2 * bytes, "GB/s",
             [&] { kernels.softmax_cross_entropy(logits, target_view, 1, loss); });
  bench.line("argmax " + shape, bytes, "GB/s", [&] { kernels.argmax_rows(logits, target_view); });
  const std::vector<int64_t> numbers(static_cast<size_t>(rows), int64_t{1} << 62);
  const View draws = bench.integers(numbers);
  bench.line("sample " + shape, bytes, "GB/s",
             [&] { kernels.sample_rows(logits, draws, {.top_k = 50, .top_p = 0.9}, target_view); });
  bench.clear();
  const View d_y = bench.floats({rows, channels}), d_weight = bench.floats({vocabulary, channels});
  std::vector<int32_t> tokens;
  for (int64_t i = 0; i < rows; ++i) tokens.push_back(static_cast<int32_t>(i * 7919 % vocabulary));
  const View token_view = bench.integers(tokens);
  bench.line("embedding backward " + shape, 12e-9 * static_cast<double>(rows * channels), "GB/s",
             [&] { kernels.embedding_backward(token_view, d_y, d_weight); });
  bench.clear();
}

void flat(Bench& bench, int64_t count) {
  Kernels& kernels = bench.kernels();
  const View p = bench.floats({count}), g = bench.floats({count}), m = bench.floats({count}), v = bench.floats({count});
  const View sum = bench.sum();
  kernels.fill(v, 1);
  const double elems = static_cast<double>(count) * 1e-9;
  AdamWStep step;
  step.learning_rate = 1e-5;
  step.num_decayed = count;
  bench.line("adamw", 28 * elems, "GB/s", [&] { kernels.adamw(p, {}, g, m, v, step); });
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const View halves = bench.array({count}, dtype), narrow = bench.array({count}, dtype),
               rest = bench.array({count}, rest_of(dtype));
    kernels.convert(g, halves);
    kernels.convert(p, narrow);
    kernels.convert(p, rest);
    bench.line(fmt::format("adamw, {}", name_of(dtype)), 26 * elems, "GB/s",
               [&] { kernels.adamw(narrow, rest, halves, m, v, step); });
    AdamWStep part = step;
    part.writes = AdamWWrites::parameters;
    bench.line(fmt::format("adamw, {}, parameters alone", name_of(dtype)), 18 * elems, "GB/s",
               [&] { kernels.adamw(narrow, rest, halves, m, v, part); });
    part.writes = AdamWWrites::moments;
    bench.line(fmt::format("adamw, {}, moments alone", name_of(dtype)), 18 * elems, "GB/s",
               [&] { kernels.adamw({}, {}, halves, m, v, part); });
    bench.line(fmt::format("widen {}", name_of(dtype)), 6 * elems, "GB/s", [&] { kernels.convert(halves, g); });
    bench.line(fmt::format("round to {}", name_of(dtype)), 6 * elems, "GB/s", [&] { kernels.convert(g, halves); });
  }
  bench.line("sum of squares", 4 * elems, "GB/s", [&] { kernels.add_sum_of_squares(p, sum); });
  bench.line("fill", 4 * elems, "GB/s", [&] { kernels.fill(p, 0); });
  bench.line("copy", 8 * elems, "GB/s", [&] { kernels.convert(g, p); });
  bench.line("fill normal", elems, "G/s", [&] { kernels.fill_normal(p, 0, 1, 1, 1, 0); });
  bench.line("fill uniform", elems, "G/s", [&] { kernels.fill_uniform(p, 0, 1, 1, 1, 0); });
  bench.clear();
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  using namespace tessera;
  Bench bench(argc > 1 ? argv[1] : "", argc > 2 ? std::stod(argv[2]) : 1.0);
  for (const auto& [rows, channels] : {std::pair<int64_t, int64_t>{800, 1024}, {2048, 512}, {1, 1024}, {16, 1024}}) {
    for (const auto& [in, out] : {std::pair<int64_t, int64_t>{1, 3}, {1, 1}, {1, 4}, {4, 1}}) {
      linear(bench, rows, in * channels, out * channels);
    }
  }
  attention(bench, 4, 512, 8, 64);
  attention(bench, 4, 200, 16, 64);
  rowwise(bench, 800, 1024);
  rowwise(bench, 2048, 512);
  head(bench, 64, 32000, 512);
  head(bench, 16, 250880, 1024);
  head(bench, 1, 250880, 1024);
  flat(bench, (int64_t{1} << 24) * std::clamp(bench.num_threads(), 2, 16));  // exceeds the caches of many cores
}
