// Measures the CUDA kernels at the shapes of bloom-560m and of Llama's family: microseconds per call, and percent of
// the GPU's greatest speed. Ten calls run as one CUDA graph, so the times leave out launches from the host.
//   cuda_ops_bench [filter] [bf16|f16|f32|tf32] [tuned|untuned] [greatest TFLOP/s] [greatest TB/s]
// `filter` selects the lines whose names contain it. `tuned` lets cuBLASLt measure its algorithms before the timing.
// Shapes of bloom-560m: N tokens in sequences of 512, C = 1024 channels, 16 heads, a vocabulary of 250880 tokens.
#include <cuda_runtime_api.h>
#include <fmt/format.h>

#include <algorithm>
#include <functional>
#include <string>
#include <vector>

#include "tessera/device/cuda/cuda_check.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/ops/back_ends.h"
#include "tessera/ops/flops.h"

namespace tessera {
namespace {

constexpr int64_t kChannels = 1024, kHeads = 16, kVocabulary = 250880, kSequence = 512;

class Bench {
 public:
  Bench(std::string filter, const std::string& type, bool tune, double tflops, double tbytes)
      : dtype(type == "bf16"  ? DType::bf16
              : type == "f16" ? DType::f16
                              : DType::f32),
        filter_(std::move(filter)),
        tune_(tune),
        tflops_(tflops),
        tbytes_(tbytes),
        kernels_(make_cuda_kernels(*device_, type == "tf32")) {
    fmt::print("{}, {}; max {} TFLOP/s, {} TB/s\n", cuda_info().devices[0].name, type, tflops, tbytes);
    fmt::print("{:<40} {:>10} {:>12} {:>8}\n", "", "us", "rate", "of max");
  }

  Kernels& kernels() { return *kernels_; }
  const DType dtype;

  // Random numbers from N(0, scale²), kept until clear().
  View random(Shape shape, DType type, double scale = 1) {
    const View view = zeros(shape, type);
    kernels_->fill_normal(view, 0, scale, buffers_.size(), 0, 0);
    return view;
  }
  View random(Shape shape) { return random(shape, dtype); }
  View zeros(Shape shape, DType type) {
    buffers_.push_back(
        device_->allocate(shape.num_elems() * static_cast<int64_t>(size_of(type)), Category::activations));
    return buffers_.back().view(shape, type);
  }
  template <typename T>
  View integers(const std::vector<T>& values) {
    const View view = zeros({static_cast<int64_t>(values.size())}, dtype_of<T>());
    device_->copy_from_host(values.data(), view);
    return view;
  }
  void clear() { buffers_.clear(); }

  // Prints a line. Returns microseconds per call, or 0 if the filter excludes the line. `flops` and `bytes` are the
  // operations and the memory traffic that a call needs. If the operations take longer than the traffic at the GPU's
  // greatest speeds, the line shows the rate in TF/s. Otherwise it shows the rate in TB/s.
  double line(const std::string& name, double flops, double bytes, const std::function<void()>& call) {
    if (name.find(filter_) == std::string::npos) return 0;
    const double us = time_us(call);
    const bool arithmetic = flops / tflops_ > bytes / tbytes_;
    const double rate = (arithmetic ? flops : bytes) / us / 1e6;
    fmt::print("{:<40} {:>10.1f} {:>7.2f} {} {:>7.0f}%\n", name, us, rate, arithmetic ? "TF/s" : "TB/s",
               100 * rate / (arithmetic ? tflops_ : tbytes_));
    return us;
  }

 private:
  double time_us(const std::function<void()>& call) {
    using cuda::check;
    constexpr int kCalls = 10, kReplays = 7;
    const auto stream = static_cast<cudaStream_t>(device_->compute_stream().native());
    kernels_->set_tuning(tune_);  // cuBLASLt's algorithms are measured before the capture
    call();
    kernels_->set_tuning(false);
    cudaGraph_t graph = nullptr;
    cudaGraphExec_t executable = nullptr;
    check(cudaStreamBeginCapture(stream, cudaStreamCaptureModeThreadLocal), "cudaStreamBeginCapture");
    for (int i = 0; i < kCalls; ++i) call();
    check(cudaStreamEndCapture(stream, &graph), "cudaStreamEndCapture");
    check(cudaGraphInstantiate(&executable, graph, 0), "cudaGraphInstantiate");
    cudaEvent_t begin, end;
    check(cudaEventCreate(&begin), "cudaEventCreate");
    check(cudaEventCreate(&end), "cudaEventCreate");
    std::vector<double> times;
    for (int i = 0; i < kReplays; ++i) {
      check(cudaEventRecord(begin, stream), "cudaEventRecord");
      check(cudaGraphLaunch(executable, stream), "cudaGraphLaunch");
      check(cudaEventRecord(end, stream), "cudaEventRecord");
      check(cudaEventSynchronize(end), "cudaEventSynchronize");
      float ms = 0;
      check(cudaEventElapsedTime(&ms, begin, end), "cudaEventElapsedTime");
      times.push_back(ms * 1e3 / kCalls);
    }
    cudaEventDestroy(begin);
    cudaEventDestroy(end);
    cudaGraphExecDestroy(executable);
    cudaGraphDestroy(graph);
    std::sort(times.begin(), times.end());
    return times[times.size() / 2];
  }

  std::string filter_;
  bool tune_;
  double tflops_, tbytes_;
  std::unique_ptr<Device> device_ = make_cuda_device(0);
  std::unique_ptr<Kernels> kernels_;
  std::vector<Buffer> buffers_;
};

// Measures a linear layer: its three products, and its bias gradient (a sum over rows). Returns the sum of the four
// times in microseconds.
double linear(Bench& bench, const std::string& name, int64_t N, int64_t in, int64_t out, bool gelu, bool residual,
              DType gradient) {
  Kernels& k = bench.kernels();
  const View x = bench.random({N, in}), weight = bench.random({out, in}, bench.dtype, 0.02), bias = bench.random({out}),
             y = bench.random({N, out}), pre = bench.random({N, out}), d_x = bench.random({N, in}),
             added = bench.random({N, out}), inner = bench.random({N, in}), d_weight = bench.zeros({out, in}, gradient),
             d_bias = bench.zeros({out}, gradient);
  const auto flops = static_cast<double>(linear_flops(N, in, out)),
             gradient_bytes = 2 * static_cast<double>(d_weight.bytes());
  const Activation after = gelu ? Activation::gelu_tanh : Activation::none;
  double sum = bench.line(name + " forward", flops, 0, [&] {
    k.linear_forward({.x = x,
                      .weight = weight,
                      .bias = bias,
                      .epilogue = {after, {}, residual ? added : View{}},
                      .preactivation = gelu ? pre : View{},
                      .y = y});
  });
  // In the backward pass, the layer after a gelu (in > out) multiplies d_x by the gelu's derivative and computes the
  // gelu's output again, as in a block of the model.
  const Activation before = in > out ? Activation::gelu_tanh : Activation::none;
  const View gelu_again = in > out ? bench.random({N, in}) : View{};
  sum += bench.line(name + " backward input", flops, 0, [&] {
    k.linear_backward_input({.d_y = y,
                             .weight = weight,
                             .epilogue = {before, {}, {}},
                             .preactivation = in > out ? inner : View{},
                             .d_x = d_x,
                             .x = gelu_again});
  });
  sum += bench.line(fmt::format("{} backward weight, {}", name, name_of(gradient)), flops, gradient_bytes,
                    [&] { k.linear_backward_weight(y, x, false, d_weight); });
  sum += bench.line(fmt::format("{} backward bias", name), 0, static_cast<double>(y.bytes()), [&] {
    k.linear_backward_bias({{{y, d_bias}}});
  });
  std::fflush(stdout);
  bench.clear();
  return sum;
}

double attention(Bench& bench, int64_t N) {
  Kernels& k = bench.kernels();
  const int64_t C = kChannels;
  std::vector<int32_t> starts;
  for (int64_t row = 0; row <= N; row += kSequence) starts.push_back(static_cast<int32_t>(row));
  const View qkv = bench.random({N, 3 * C}), o = bench.random({N, C}), d_o = bench.random({N, C}),
             lse = bench.zeros({N, kHeads}, DType::f32), d_qkv = bench.random({N, 3 * C}),
             slopes = bench.random({kHeads}, DType::f32, 0.01), at = bench.integers(starts);
  const AttentionShape shape{kHeads, C / kHeads, QkvLayout::interleaved, slopes};
  const View workspace = bench.zeros({attention_workspace_elems(bench.dtype, shape, N)}, DType::f32);
  const auto flops = static_cast<double>(N / kSequence * attention_forward_flops(kSequence, C));
  double sum = bench.line(fmt::format("attention forward {}", N), flops, 0, [&] {
    k.attention_forward({.qkv = qkv, .starts = at, .shape = shape, .o = o, .log_sum_exp = lse});
  });
  sum += bench.line(fmt::format("attention backward {}", N), 2.5 * flops, 0, [&] {
    k.attention_backward({.qkv = qkv,
                          .o = o,
                          .log_sum_exp = lse,
                          .d_o = d_o,
                          .starts = at,
                          .shape = shape,
                          .d_qkv = d_qkv,
                          .workspace = workspace});
  });
  bench.clear();
  return sum;
}

double norms(Bench& bench, int64_t N) {
  Kernels& k = bench.kernels();
  const int64_t C = kChannels;
  const View x = bench.random({N, C}), weight = bench.random({C}), bias = bench.random({C}), y = bench.random({N, C}),
             stats = bench.zeros({N, 2}, DType::f32), residual = bench.random({N, C}), d_x = bench.random({N, C}),
             again = bench.random({N, C}), d_weight = bench.zeros({C}, DType::f32),
             d_bias = bench.zeros({C}, DType::f32);
  const auto row = static_cast<double>(N * C) * static_cast<double>(size_of(bench.dtype));
  double sum = bench.line(fmt::format("layer norm forward {}", N), 0, 2 * row, [&] {
    k.layer_norm_forward({.x = x, .weight = weight, .bias = bias, .epsilon = 1e-5, .y = y, .stats = stats});
  });
  sum += bench.line(fmt::format("layer norm backward {}", N), 0, 5 * row, [&] {
    k.layer_norm_backward({.d_y = y,
                           .x = x,
                           .weight = weight,
                           .bias = bias,
                           .stats = stats,
                           .residual = residual,
                           .d_x = d_x,
                           .d_weight = d_weight,
                           .d_bias = d_bias,
                           .y = again});
  });
  sum *= 2;  // a block has two norms
  bench.clear();
  return sum;
}

void head(Bench& bench, int64_t M) {
  Kernels& k = bench.kernels();
  linear(bench, fmt::format("head of {}", M), M, kChannels, kVocabulary, false, false, DType::f32);
  std::vector<int32_t> targets(static_cast<size_t>(M));
  for (size_t i = 0; i < targets.size(); ++i) targets[i] = static_cast<int32_t>(i * 900 % kVocabulary);
  const View logits = bench.random({M, kVocabulary}), at = bench.integers(targets), loss = bench.zeros({1}, DType::f64),
             ids = bench.integers(targets);
  const auto bytes = static_cast<double>(logits.bytes());
  bench.line(fmt::format("cross-entropy {}", M), 0, 2 * bytes, [&] { k.softmax_cross_entropy(logits, at, 1, loss); });
  bench.line(fmt::format("argmax {}", M), 0, bytes, [&] { k.argmax_rows(logits, ids); });
  std::vector<int64_t> numbers(static_cast<size_t>(M), int64_t{1} << 62);
  const View draws = bench.integers(numbers);
  bench.line(fmt::format("sample {}", M), 0, bytes, [&] { k.sample_rows(logits, draws, {}, ids); });
  bench.line(fmt::format("sample top_k top_p {}", M), 0, bytes,
             [&] { k.sample_rows(logits, draws, {.top_k = 50, .top_p = 0.9}, ids); });
  bench.clear();
}

void flat(Bench& bench) {
  Kernels& k = bench.kernels();
  constexpr int64_t kElems = int64_t{64} << 20;
  const View p = bench.random({kElems}, DType::f32), g = bench.random({kElems}, DType::f32),
             m = bench.random({kElems}, DType::f32), v = bench.zeros({kElems}, DType::f32),
             narrow_g = bench.zeros({kElems}, bench.dtype), narrow = bench.zeros({kElems}, bench.dtype),
             sum = bench.zeros({1}, DType::f64);
  constexpr double kBytes = 4.0 * kElems, kBlockBytes = 4 * 260.0 / 256 * kElems;  // blocks: both moments, both ways
  const View q8_m = bench.zeros({kElems / kQuantizedValues}, DType::q8_signed),
             q8_v = bench.zeros({kElems / kQuantizedValues}, DType::q8_unsigned);
  bench.line("adamw, f32", 0, 7 * kBytes, [&] { k.adamw({.parameters = p, .gradients = g, .m = m, .v = v}, {}); });
  bench.line("adamw, f32, 8-bit moments", 0, 3 * kBytes + kBlockBytes,
             [&] { k.adamw({.parameters = p, .gradients = g, .m = q8_m, .v = q8_v}, {}); });
  if (size_of(bench.dtype) == 2) {
    const View rest = bench.zeros({kElems}, rest_of(bench.dtype));
    bench.line(fmt::format("adamw, {}", name_of(bench.dtype)), 0, 6.5 * kBytes,
               [&] { k.adamw({.parameters = narrow, .rest = rest, .gradients = narrow_g, .m = m, .v = v}, {}); });
    bench.line(fmt::format("adamw, {}, 8-bit moments", name_of(bench.dtype)), 0, 2.5 * kBytes + kBlockBytes,
               [&] { k.adamw({.parameters = narrow, .rest = rest, .gradients = narrow_g, .m = q8_m, .v = q8_v}, {}); });
  }
  bench.line("sum of squares", 0, kBytes, [&] { k.add_sum_of_squares(g, sum); });
  bench.line("add", 0, 3 * kBytes, [&] { k.add(g, m); });
  bench.line(fmt::format("convert to {}", name_of(bench.dtype)), 0, 4.0 * kElems + static_cast<double>(narrow.bytes()),
             [&] { k.convert(g, narrow); });
  bench.line("copy", 0, 2 * kBytes, [&] { k.convert(g, m); });
  bench.clear();
}

void embedding(Bench& bench, int64_t N) {
  Kernels& k = bench.kernels();
  std::vector<int32_t> values(static_cast<size_t>(N));
  for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i * 7919 % 50000);
  const View ids = bench.integers(values), weight = bench.zeros({kVocabulary, kChannels}, bench.dtype),
             d_weight = bench.zeros({kVocabulary, kChannels}, DType::f32), y = bench.random({N, kChannels});
  const auto bytes = static_cast<double>(y.bytes());
  bench.line(fmt::format("embedding forward {}", N), 0, 2 * bytes, [&] { k.gather_rows(weight, ids, y); });
  bench.line(fmt::format("embedding backward {}", N), 0, bytes + static_cast<double>(N * kChannels * 8),
             [&] { k.embedding_backward(ids, y, d_weight); });
  bench.clear();
}

void decode(Bench& bench, int64_t B, int64_t length) {
  Kernels& k = bench.kernels();
  const int64_t C = kChannels;
  std::vector<int32_t> starts, lengths;
  for (int64_t b = 0; b < B; ++b) {
    starts.push_back(static_cast<int32_t>(b * (length + 8)));
    lengths.push_back(static_cast<int32_t>(length));
  }
  const View qkv = bench.random({B, 3 * C}), keys = bench.random({B * (length + 8), C}),
             values = bench.random({B * (length + 8), C}), o = bench.random({B, C}), at = bench.integers(starts),
             used = bench.integers(lengths), slopes = bench.random({kHeads}, DType::f32, 0.01);
  const AttentionShape shape{kHeads, C / kHeads, QkvLayout::interleaved, slopes};
  const double bytes = 2.0 * static_cast<double>(B * length * C) * static_cast<double>(size_of(bench.dtype));
  bench.line(fmt::format("decode {} x {}", B, length), 0, bytes, [&] {
    k.attention_decode(
        {.qkv = qkv, .shape = shape, .cache_starts = at, .lengths = used, .keys = keys, .values = values, .o = o});
  });
  bench.clear();
}

// Measures attention with grouped heads, as in Llama's family, for 16,384 tokens in sequences of `length` tokens.
void grouped_attention(Bench& bench, int64_t head_dim, int64_t length) {
  constexpr int64_t kTokens = 16384, kGroup = 4;
  Kernels& k = bench.kernels();
  const int64_t H = 4096 / head_dim, K = H / kGroup, C = H * head_dim, W = C + 2 * K * head_dim;
  std::vector<int32_t> starts;
  for (int64_t row = 0; row <= kTokens; row += length) starts.push_back(static_cast<int32_t>(row));
  const View qkv = bench.random({kTokens, W}), o = bench.random({kTokens, C}), d_o = bench.random({kTokens, C}),
             lse = bench.zeros({kTokens, H}, DType::f32), d_qkv = bench.random({kTokens, W}),
             at = bench.integers(starts);
  const AttentionShape shape{H, head_dim, QkvLayout::blocked, {}, K, 0};
  const View workspace = bench.zeros({attention_workspace_elems(bench.dtype, shape, kTokens)}, DType::f32);
  const auto flops = static_cast<double>(kTokens / length * attention_forward_flops(length, C));
  const std::string name = fmt::format("{} x {}, {}/{} heads of {}", kTokens / length, length, H, K, head_dim);
  bench.line("attention forward " + name, flops, 0,
             [&] { k.attention_forward({.qkv = qkv, .starts = at, .shape = shape, .o = o, .log_sum_exp = lse}); });
  bench.line("attention backward " + name, 2.5 * flops, 0, [&] {
    k.attention_backward({.qkv = qkv,
                          .o = o,
                          .log_sum_exp = lse,
                          .d_o = d_o,
                          .starts = at,
                          .shape = shape,
                          .d_qkv = d_qkv,
                          .workspace = workspace});
  });
  bench.clear();
}

void decoder_rows(Bench& bench, int64_t N, int64_t C) {
  constexpr int64_t kHeadDim = 128;
  Kernels& k = bench.kernels();
  const int64_t H = C / kHeadDim, K = H / 4, W = C + 2 * K * kHeadDim, F = 4 * C;
  const auto size = static_cast<double>(size_of(bench.dtype));
  const auto row = static_cast<double>(N * C) * size, wide = static_cast<double>(N * W) * size,
             inner = static_cast<double>(N * F) * size;
  const std::string name = fmt::format(" {} x {}", N, C);
  {
    const View x = bench.random({N, C}), weight = bench.random({C}), y = bench.random({N, C}),
               rstd = bench.zeros({N, 1}, DType::f32), residual = bench.random({N, C}), d_x = bench.random({N, C}),
               again = bench.random({N, C}), d_weight = bench.zeros({C}, DType::f32);
    bench.line("rms norm forward" + name, 0, 2 * row,
               [&] { k.rms_norm_forward({.x = x, .weight = weight, .epsilon = 1e-5, .y = y, .stats = rstd}); });
    bench.line("rms norm backward" + name, 0, 5 * row, [&] {
      k.rms_norm_backward({.d_y = y,
                           .x = x,
                           .weight = weight,
                           .stats = rstd,
                           .residual = residual,
                           .d_x = d_x,
                           .d_weight = d_weight,
                           .y = again});
    });
    bench.clear();
  }
  {
    const View qkv = bench.random({N, W}), rotations = bench.random({N, kHeadDim}, DType::f32),
               y = bench.random({N, W}), d_qkv = bench.random({N, W}), weight = bench.random({kHeadDim}),
               d_queries = bench.zeros({kHeadDim}, DType::f32), d_keys = bench.zeros({kHeadDim}, DType::f32);
    const AttentionShape shape{H, kHeadDim, QkvLayout::blocked, {}, K, 0};
    const HeadNorms norms{weight, weight, 1e-6};
    const double in_place = 2 * static_cast<double>(N * (H + K) * kHeadDim) * size;
    bench.line("rotate in place" + name, 0, in_place,
               [&] { k.rotate_heads({.qkv = qkv, .rotations = rotations, .shape = shape, .y = qkv}); });
    bench.line("rotate with norms" + name, 0, 2 * wide,
               [&] { k.rotate_heads({.qkv = qkv, .rotations = rotations, .shape = shape, .norms = norms, .y = y}); });
    bench.line("rotate with norms backward" + name, 0, 3 * wide, [&] {
      k.rotate_heads_backward({.d_y = y,
                               .qkv = qkv,
                               .rotations = rotations,
                               .shape = shape,
                               .norms = norms,
                               .d_qkv = d_qkv,
                               .d_query_weight = d_queries,
                               .d_key_weight = d_keys});
    });
    bench.clear();
  }
  const View gate_up = bench.random({N, 2 * F}), h = bench.random({N, F}), again = bench.random({N, F}),
             d_gate_up = bench.random({N, 2 * F});
  bench.line("gated forward" + name, 0, 3 * inner, [&] { k.gated_forward(gate_up, Activation::silu, h); });
  bench.line("gated backward" + name, 0, 6 * inner, [&] {
    k.gated_backward(
        {.d_h = h, .gate_up = gate_up, .activation = Activation::silu, .d_gate_up = d_gate_up, .h = again});
  });
  if (bench.dtype == DType::bf16 && k.refusal_of_float8().empty()) {
    const auto matrix = [&](int64_t rows, int64_t columns, bool squares) {
      return Float8Matrix{bench.zeros({rows, columns}, DType::e4m3),
                          bench.zeros(float8_scales(rows, columns, squares), DType::f32), squares};
    };
    const Float8Matrix h_rows = matrix(N, F, false), h_columns = matrix(F, N, true), narrow = matrix(N, 2 * F, false),
                       d_rows = matrix(N, 2 * F, false), d_columns = matrix(2 * F, N, false);
    const double one = inner / 2;  // an array in 8 bits
    bench.line("quantize rows" + name, 0, inner + one, [&] { k.quantize({.x = h, .rows = h_rows}); });
    bench.line("quantize columns in squares" + name, 0, inner + one,
               [&] { k.quantize({.x = h, .columns = h_columns}); });
    bench.line("quantize rows and columns" + name, 0, 2 * (inner + 2 * one),
               [&] { k.quantize({.x = gate_up, .rows = d_rows, .columns = d_columns}); });
    bench.line("gated forward 8" + name, 0, 2 * inner + 3 * one, [&] {
      k.gated_forward8({.gate_up = gate_up, .activation = Activation::silu, .h = h_rows, .rounded = narrow});
    });
    bench.line("gated backward 8" + name, 0, inner + 7 * one, [&] {
      k.gated_backward8({.d_h = h,
                         .gate_up = narrow,
                         .activation = Activation::silu,
                         .d_gate_up_rows = d_rows,
                         .d_gate_up_columns = d_columns,
                         .h_columns = h_columns});
    });
  }
  bench.clear();
}

void run(Bench& bench) {
  for (const int64_t N : {512, 2048, 8192}) {
    const int64_t C = kChannels;
    double us = 0, flops = static_cast<double>(3 * linear_flops(N, C, 12 * C)) +
                           3.5 * static_cast<double>(N / kSequence * attention_forward_flops(kSequence, C));
    us += linear(bench, fmt::format("qkv {}", N), N, C, 3 * C, false, false, DType::f32);
    us += linear(bench, fmt::format("dense {}", N), N, C, C, false, true, DType::f32);
    us += linear(bench, fmt::format("up {}", N), N, C, 4 * C, true, false, DType::f32);
    us += linear(bench, fmt::format("down {}", N), N, 4 * C, C, false, true, DType::f32);
    us += attention(bench, N);
    us += norms(bench, N);
    embedding(bench, N);
    fmt::print("a block forward and backward, {} tokens: {:.1f} us, {:.0f} TFLOP/s\n\n", N, us, flops / us / 1e6);
  }
  if (bench.dtype != DType::f32) linear(bench, "up 8192", 8192, kChannels, 4 * kChannels, true, false, bench.dtype);
  for (const int64_t M : {256, 1024, 2048}) head(bench, M);
  flat(bench);
  decode(bench, 1, 512);
  decode(bench, 16, 512);
  decode(bench, 256, 512);
  for (const int64_t head_dim : {64, 128}) {
    for (const int64_t length : {512, 2048, 4096, 8192, 16384}) grouped_attention(bench, head_dim, length);
  }
  for (const int64_t channels : {2048, 4096}) decoder_rows(bench, 8192, channels);
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  const std::vector<std::string> args(argv + 1, argv + argc);
  const auto arg = [&](size_t i, const char* otherwise) { return i < args.size() ? args[i] : std::string(otherwise); };
  tessera::Bench bench(arg(0, ""), arg(1, "bf16"), arg(2, "tuned") == "tuned", std::stod(arg(3, "790")),
                       std::stod(arg(4, "4.3")));
  tessera::run(bench);
}
