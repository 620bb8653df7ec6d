// Measures the CPU kernels with the shapes of small and medium BLOOM and Llama models. Each line has the median time of
// many calls, the best rate and the median rate. A rate is in GFLOP/s, in GB/s of the data that a call must read and
// write, or in 10^9 random numbers per second. Matrix products are compared with BLAS; OpenBLAS uses the same number of
// threads. The line of a Llama operator ends with a lower bound of the time, and with the median time divided by this
// bound. The bound is the larger of two times: the operations of a call at the speed of BLAS, and a copy that moves as
// many bytes as a call.
//   ops_bench [filter] [seconds per line]
// Shapes are N tokens × C channels. 800 × 1024: four SQuAD prompts in bloom-560m. 2048 × 512: four samples of 512
// tokens in a small model. 800 × 2048: four prompts in Llama 3.2 1B.
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
    fmt::print("{:<66} {:>10} {:>10} {:>10}\n", fmt::format("{} threads", pool_.num_threads()), "median ms",
               "best rate", "median");
  }

  // `work`: the operations, bytes or random numbers of a call, in units of 10^9.
  void line(const std::string& name, double work, const char* unit, const std::function<void()>& call) {
    if (name.find(filter_) == std::string::npos) return;
    fmt::print("{}\n", measured(name, work, unit, seconds_of(call, seconds_)));
  }
  // `flops`: the operations of a call. `bytes`: the data that it must read and write. Also prints the lower bound that
  // the head of this file describes.
  void line(const std::string& name, double flops, double bytes, const std::function<void()>& call) {
    if (name.find(filter_) == std::string::npos) return;
    const double computing_s = flops / flops_per_s(), copying_s = copy_s(bytes),
                 floor_s = std::max(computing_s, copying_s);
    const bool computes = computing_s > copying_s;
    const std::vector<double> times = seconds_of(call, seconds_);
    fmt::print("{}, at least {:.3f} ms, took {:.2f} times as long\n",
               measured(name, (computes ? flops : bytes) * 1e-9, computes ? "GFLOP/s" : "GB/s", times), floor_s * 1e3,
               times[times.size() / 2] / floor_s);
  }

  // Returns an array of random numbers from N(0, 1). The array exists until the next call of clear().
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
  // Returns the times of many calls in seconds, the shortest first.
  static std::vector<double> seconds_of(const std::function<void()>& call, double seconds) {
    std::vector<double> times;
    call();
    for (const double end = now_s() + seconds; now_s() < end || times.size() < 5;) {
      const double begin = now_s();
      call();
      times.push_back(now_s() - begin);
    }
    std::sort(times.begin(), times.end());
    return times;
  }
  static std::string measured(const std::string& name, double work, const char* unit,
                              const std::vector<double>& times) {
    const double median = times[times.size() / 2];
    return fmt::format("{:<66} {:>10.3f} {:>10.1f} {:>10.1f} {}", name, median * 1e3, work / times[0], work / median,
                       unit);
  }
  // Operations per second of BLAS for a product of 1024 x 1024 x 1024.
  double flops_per_s();
  // The shortest measured time of a copy that reads bytes / 2 and writes bytes / 2. Its arrays have `bytes` in total,
  // because the speed of a copy depends on the caches that its arrays fit into.
  double copy_s(double bytes) {
    const size_t kept = buffers_.size();
    const auto count = std::max<int64_t>(1, static_cast<int64_t>(bytes / 8));
    const View from = floats({count}), to = floats({count});
    const double seconds = seconds_of([&] { kernels_->convert(from, to); }, seconds_ / 4)[0];
    buffers_.erase(buffers_.begin() + static_cast<ptrdiff_t>(kept), buffers_.end());
    return seconds;
  }

  double flops_per_s_ = 0;
  std::string filter_;
  double seconds_;
  ThreadPool pool_;
  std::unique_ptr<Device> device_ = make_cpu_device(pool_);
  std::unique_ptr<Kernels> kernels_ = make_kernels(*device_);
  std::vector<Buffer> buffers_;
};

// The kernels set BLAS to one thread. This function sets another number of threads, but only for OpenBLAS.
void set_blas_threads(int count) {
  if (void* function = dlsym(RTLD_DEFAULT, "openblas_set_num_threads")) {
    reinterpret_cast<void (*)(int)>(function)(count);
  }
}

double Bench::flops_per_s() {
  if (flops_per_s_ > 0) return flops_per_s_;
  constexpr int kSize = 1024;
  const View a = floats({kSize, kSize}), b = floats({kSize, kSize}), c = floats({kSize, kSize});
  set_blas_threads(num_threads());
  const std::vector<double> times = seconds_of(
      [&] {
        cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, kSize, kSize, kSize, 1, a.as<float>(), kSize,
                    b.as<float>(), kSize, 0, c.as<float>(), kSize);
      },
      seconds_);
  set_blas_threads(1);
  buffers_.erase(buffers_.end() - 3, buffers_.end());
  return flops_per_s_ = static_cast<double>(linear_flops(kSize, kSize, kSize)) / times[0];
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
  bench.line("linear " + shape, work, "GFLOP/s", [&] { kernels.linear_forward({.x = x, .weight = weight, .y = y}); });
  set_blas_threads(bench.num_threads());
  bench.line("BLAS " + shape, work, "GFLOP/s", [&] {
    cblas_sgemm(CblasRowMajor, CblasNoTrans, CblasTrans, static_cast<int>(rows), static_cast<int>(out),
                static_cast<int>(in), 1, x.as<float>(), static_cast<int>(in), weight.as<float>(), static_cast<int>(in),
                0, y.as<float>(), static_cast<int>(out));
  });
  set_blas_threads(1);
  bench.line("linear bias residual " + shape, work, "GFLOP/s",
             [&] { kernels.linear_forward({.x = x, .weight = weight, .bias = bias, .epilogue = add, .y = y}); });
  bench.line("linear bias gelu " + shape, work, "GFLOP/s", [&] {
    kernels.linear_forward({.x = x, .weight = weight, .bias = bias, .epilogue = gelu, .preactivation = pre, .y = y});
  });
  bench.line("linear d_x " + shape, work, "GFLOP/s",
             [&] { kernels.linear_backward_input({.d_y = y, .weight = weight, .d_x = d_x}); });
  bench.line("linear d_x gelu' " + shape, work, "GFLOP/s", [&] {
    kernels.linear_backward_input({.d_y = y, .weight = weight, .epilogue = gelu, .preactivation = pre_in, .d_x = d_x});
  });
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
  bench.line("attention " + name, work, "GFLOP/s", [&] {
    kernels.attention_forward({.qkv = qkv, .starts = starts_view, .shape = shape, .o = o, .log_sum_exp = log_sum_exp});
  });
  bench.line("attention backward " + name, 2.5 * work, "GFLOP/s", [&] {
    kernels.attention_backward({.qkv = qkv,
                                .o = o,
                                .log_sum_exp = log_sum_exp,
                                .d_o = d_o,
                                .starts = starts_view,
                                .shape = shape,
                                .d_qkv = d_qkv});
  });
  std::vector<int32_t> lengths(static_cast<size_t>(sequences), static_cast<int32_t>(length - 1));
  starts.pop_back();
  const View cache_starts = bench.integers(starts), lengths_view = bench.integers(lengths);
  bench.line("attention decode " + name, 8e-9 * static_cast<double>(rows * channels), "GB/s", [&] {
    kernels.attention_decode({.qkv = qkv.rows(0, sequences),
                              .shape = shape,
                              .cache_starts = cache_starts,
                              .lengths = lengths_view,
                              .keys = o,
                              .values = d_o,
                              .o = d_qkv.reshaped({3 * rows, channels}).rows(0, sequences)});
  });
  bench.clear();
}

void rowwise(Bench& bench, int64_t rows, int64_t channels) {
  Kernels& kernels = bench.kernels();
  const View x = bench.floats({rows, channels}), y = bench.floats({rows, channels}), d = bench.floats({rows, channels});
  const View weight = bench.floats({channels}), bias = bench.floats({channels}), stats = bench.floats({rows, 2});
  const double bytes = 4e-9 * static_cast<double>(rows * channels);
  const std::string shape = fmt::format("{} x {}", rows, channels);
  bench.line("layer norm " + shape, 2 * bytes, "GB/s", [&] {
    kernels.layer_norm_forward({.x = x, .weight = weight, .bias = bias, .epsilon = 1e-5, .y = y, .stats = stats});
  });
  bench.line("layer norm backward " + shape, 4 * bytes, "GB/s", [&] {
    kernels.layer_norm_backward({.d_y = y,
                                 .x = x,
                                 .weight = weight,
                                 .stats = stats,
                                 .residual = d,
                                 .d_x = d,
                                 .d_weight = weight,
                                 .d_bias = bias});
  });
  std::vector<int64_t> row_ids(static_cast<size_t>(rows));
  for (size_t i = 0; i < row_ids.size(); ++i) row_ids[i] = static_cast<int64_t>(i);
  const Dropout dropout{0.1f, 1, 1, bench.integers(row_ids)};
  bench.line("dropout " + shape, 2 * bytes, "GB/s", [&] { kernels.dropout_backward(x, dropout, y); });
  bench.clear();
}

// Measures the operators that Llama-like models run between their matrix products: RMS norm, rotary positions without
// and with the norms of heads, and the gated activation of `ff_dim` channels.
void llama_rowwise(Bench& bench, int64_t rows, int64_t channels, int64_t ff_dim, const AttentionShape& shape) {
  Kernels& kernels = bench.kernels();
  const auto bytes = [&](int64_t elems) { return 4.0 * static_cast<double>(rows * elems); };
  {
    const View x = bench.floats({rows, channels}), y = bench.floats({rows, channels}),
               d = bench.floats({rows, channels});
    const View weight = bench.floats({channels}), d_weight = bench.floats({channels}), rstd = bench.floats({rows, 1});
    const std::string name = fmt::format("{} x {}", rows, channels);
    bench.line("rms norm " + name, 0, bytes(2 * channels),
               [&] { kernels.rms_norm_forward({.x = x, .weight = weight, .epsilon = 1e-5, .y = y, .stats = rstd}); });
    bench.line("rms norm backward " + name, 0, bytes(4 * channels), [&] {
      kernels.rms_norm_backward(
          {.d_y = y, .x = x, .weight = weight, .stats = rstd, .residual = d, .d_x = d, .d_weight = d_weight});
    });
    bench.clear();
  }
  {
    const int64_t width = shape.row_channels(), turned = width - shape.kv_channels(), D = shape.head_dim;
    const View qkv = bench.floats({rows, width}), y = bench.floats({rows, width}), rotations = bench.floats({rows, D});
    std::vector<int32_t> positions;
    for (int64_t i = 0; i < rows; ++i) positions.push_back(static_cast<int32_t>(i));
    kernels.rotary_angles(bench.integers(positions), bench.floats({D / 2}), 1, rotations);
    const View d_query = bench.floats({D}), d_key = bench.floats({D});
    const HeadNorms norms{bench.floats({D}), bench.floats({D}), 1e-6};
    const std::string name = fmt::format("{} x {}, heads of {}", rows, width, D);
    // `turned` is the number of channels of q and k. Without norms, the rotation is in place and does not touch v.
    bench.line("rotary " + name, 0, bytes(2 * turned),
               [&] { kernels.rotate_heads({.qkv = qkv, .rotations = rotations, .shape = shape, .y = qkv}); });
    bench.line("rotary backward " + name, 0, bytes(2 * turned),
               [&] { kernels.rotate_heads_backward({.d_y = y, .rotations = rotations, .shape = shape, .d_qkv = y}); });
    bench.line("head norms, rotary " + name, 0, bytes(2 * width), [&] {
      kernels.rotate_heads({.qkv = qkv, .rotations = rotations, .shape = shape, .norms = norms, .y = y});
    });
    bench.line("head norms, rotary backward " + name, 0, bytes(width + 2 * turned), [&] {
      kernels.rotate_heads_backward({.d_y = y,
                                     .qkv = qkv,
                                     .rotations = rotations,
                                     .shape = shape,
                                     .norms = norms,
                                     .d_qkv = y,
                                     .d_query_weight = d_query,
                                     .d_key_weight = d_key});
    });
    bench.clear();
  }
  const View gate_up = bench.floats({rows, 2 * ff_dim}), d_gate_up = bench.floats({rows, 2 * ff_dim});
  const View h = bench.floats({rows, ff_dim});
  const std::string name = fmt::format("{} x {}", rows, ff_dim);
  bench.line("gated silu " + name, 0, bytes(3 * ff_dim), [&] { kernels.gated_forward(gate_up, Activation::silu, h); });
  bench.line("gated silu backward " + name, 0, bytes(5 * ff_dim), [&] {
    kernels.gated_backward({.d_h = h, .gate_up = gate_up, .activation = Activation::silu, .d_gate_up = d_gate_up});
  });
  bench.clear();
}

// Measures attention with fewer heads of keys and values than heads of queries. If shape.window is not 0, attention has
// a sliding window.
void grouped_attention(Bench& bench, int64_t sequences, int64_t length, const AttentionShape& shape) {
  Kernels& kernels = bench.kernels();
  const int64_t rows = sequences * length, channels = shape.channels(), width = shape.row_channels();
  const View qkv = bench.floats({rows, width}), o = bench.floats({rows, channels}),
             d_o = bench.floats({rows, channels});
  const View log_sum_exp = bench.floats({rows, shape.num_heads}), d_qkv = bench.floats({rows, width});
  std::vector<int32_t> starts;
  for (int64_t b = 0; b <= sequences; ++b) starts.push_back(static_cast<int32_t>(b * length));
  const View starts_view = bench.integers(starts);
  const auto flops = static_cast<double>(sequences * attention_forward_flops(length, channels, shape.window));
  const auto bytes = [&](int64_t elems) { return 4.0 * static_cast<double>(rows * elems); };
  const std::string name =
      fmt::format("{} of {}, {}/{} heads of {}{}", sequences, length, shape.num_heads, shape.kv_heads(), shape.head_dim,
                  shape.window > 0 ? fmt::format(", window {}", shape.window) : "");
  bench.line("grouped attention " + name, flops, bytes(width + channels), [&] {
    kernels.attention_forward({.qkv = qkv, .starts = starts_view, .shape = shape, .o = o, .log_sum_exp = log_sum_exp});
  });
  bench.line("grouped attention backward " + name, 2.5 * flops, bytes(2 * width + 2 * channels), [&] {
    kernels.attention_backward({.qkv = qkv,
                                .o = o,
                                .log_sum_exp = log_sum_exp,
                                .d_o = d_o,
                                .starts = starts_view,
                                .shape = shape,
                                .d_qkv = d_qkv});
  });
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
  const View q8_m = bench.array({count / kQuantizedValues}, DType::q8_signed),
             q8_v = bench.array({count / kQuantizedValues}, DType::q8_unsigned);
  const double block_bytes = 4 * 260.0 / 256 * elems;  // both moments, read and written
  bench.line("adamw", 28 * elems, "GB/s",
             [&] { kernels.adamw({.parameters = p, .gradients = g, .m = m, .v = v}, step); });
  bench.line("adamw, 8-bit moments", 12 * elems + block_bytes, "GB/s",
             [&] { kernels.adamw({.parameters = p, .gradients = g, .m = q8_m, .v = q8_v}, step); });
  for (const DType dtype : {DType::bf16, DType::f16}) {
    const View halves = bench.array({count}, dtype), narrow = bench.array({count}, dtype),
               rest = bench.array({count}, rest_of(dtype));
    kernels.convert(g, halves);
    kernels.convert(p, narrow);
    kernels.convert(p, rest);
    bench.line(fmt::format("adamw, {}", name_of(dtype)), 26 * elems, "GB/s",
               [&] { kernels.adamw({.parameters = narrow, .rest = rest, .gradients = halves, .m = m, .v = v}, step); });
    bench.line(fmt::format("adamw, {}, 8-bit moments", name_of(dtype)), 10 * elems + block_bytes, "GB/s", [&] {
      kernels.adamw({.parameters = narrow, .rest = rest, .gradients = halves, .m = q8_m, .v = q8_v}, step);
    });
    AdamWStep part = step;
    part.writes = AdamWWrites::parameters;
    bench.line(fmt::format("adamw, {}, parameters alone", name_of(dtype)), 18 * elems, "GB/s",
               [&] { kernels.adamw({.parameters = narrow, .rest = rest, .gradients = halves, .m = m, .v = v}, part); });
    part.writes = AdamWWrites::moments;
    bench.line(fmt::format("adamw, {}, moments alone", name_of(dtype)), 18 * elems, "GB/s",
               [&] { kernels.adamw({.gradients = halves, .m = m, .v = v}, part); });
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
  const AttentionShape llama_1b{32, 64, QkvLayout::blocked, {}, 8}, small{8, 64, QkvLayout::blocked, {}, 2};
  llama_rowwise(bench, 800, 2048, 8192, llama_1b);
  llama_rowwise(bench, 2048, 512, 1408, small);
  for (const auto& [sequences, length] : {std::pair<int64_t, int64_t>{4, 200}, {4, 512}, {1, 2048}}) {
    for (AttentionShape shape : {llama_1b, small}) {
      grouped_attention(bench, sequences, length, shape);
      shape.window = 128;
      grouped_attention(bench, sequences, length, shape);
    }
  }
  head(bench, 64, 32000, 512);
  head(bench, 16, 250880, 1024);
  head(bench, 1, 250880, 1024);
  flat(bench, (int64_t{1} << 24) * std::clamp(bench.num_threads(), 2, 16));  // larger than all caches together
}
