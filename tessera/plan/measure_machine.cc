#include "tessera/plan/measure_machine.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "tessera/base/clock.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/engine/engine_context.h"
#include "tessera/ops/kernels.h"

namespace tessera {
namespace {

// Calls work on the compute stream of a device, and measures how long one call takes if many calls follow each other.
class Bench {
 public:
  explicit Bench(Device& device, bool tf32 = false)
      : device_(device), stream_(device.compute_stream()), kernels_(make_kernels(device, tf32)) {}

  Kernels& kernels() { return *kernels_; }
  Device& device() { return device_; }

  // Seconds per call. On a GPU, the calls run as a graph, as those of a block do. `budget_s`: for the measurement.
  double seconds_of(const std::function<void()>& work, double budget_s) {
    kernels_->set_tuning(true);
    work();  // chooses algorithms, loads code
    kernels_->set_tuning(false);
    stream_.synchronize();
    // Slow work is called less often. Large products take most of the time of `doctor --measure`.
    const double alone = timed([&] { work(), stream_.synchronize(); });
    const int num_calls = std::clamp(static_cast<int>(0.02 / std::max(alone, 1e-7)), 5, 10);
    const auto calls = [&] {
      for (int i = 0; i < num_calls; ++i) work();
    };
    const std::unique_ptr<StreamGraph> graph = stream_.capture(calls);
    const auto launch = [&] { graph ? graph->launch() : work(); };
    const int per_launch = graph ? num_calls : 1;
    launch();
    stream_.synchronize();
    const double first = timed([&] { launch(), stream_.synchronize(); });
    // Half of the time warms up: under load, a GPU lowers its clock.
    const int count = std::clamp(static_cast<int>(budget_s / 2 / std::max(first, 1e-7)), 1, 2000);
    for (int i = 0; i < count; ++i) launch();
    stream_.synchronize();
    const double all = timed([&] {
      for (int i = 0; i < count; ++i) launch();
      stream_.synchronize();
    });
    return all / count / per_launch;
  }

  static double timed(const std::function<void()>& work) {
    const double begin = steady_seconds();
    work();
    return steady_seconds() - begin;
  }

 private:
  Device& device_;
  Stream& stream_;
  std::unique_ptr<Kernels> kernels_;
};

// Arrays of one size of memory, filled with random numbers: products of zeros need less power, and run faster.
class Arrays {
 public:
  Arrays(Bench& bench, int64_t bytes) : buffer_(bench.device().allocate(bytes, Category::workspace)) {
    const View halves = buffer_.view({bytes / 2}, DType::bf16);
    bench.kernels().fill_normal(halves, 0, 0.02, 1, 1, 0);
  }
  void reset() { used_ = 0; }
  bool fits(int64_t bytes) const { return used_ + bytes <= buffer_.bytes(); }
  View take(Shape shape, DType type) {
    const View view{buffer_.data() + used_, type, shape};
    used_ += (view.bytes() + Device::kAlignment - 1) / Device::kAlignment * Device::kAlignment;
    TESSERA_ASSERT(used_ <= buffer_.bytes());
    return view;
  }

 private:
  Buffer buffer_;
  int64_t used_ = 0;
};

struct LayerSize {
  int64_t in, out;
};

// A kernel that only moves data, and takes about this time.
class MovingKernel {
 public:
  MovingKernel(Bench& bench, View memory, const Machine& machine, double seconds) : bench_(bench) {
    const double rate = static_cast<double>(machine.memory.back().bytes) / machine.memory.back().seconds;
    const auto bytes = static_cast<int64_t>(std::max(seconds, 2e-6) * rate);
    const int64_t columns = std::clamp<int64_t>(bytes / 3 / 2 / 8, 8, memory.num_elems() / 3 / 8) / 8 * 8;
    gate_up_ = {memory.data, DType::bf16, {8, 2 * columns}};
    h_ = {memory.data + gate_up_.bytes(), DType::bf16, {8, columns}};
    seconds_ = memory_time(machine, static_cast<double>(gate_up_.bytes() + h_.bytes())) + kStartOfKernel_s;
  }
  void run() const { bench_.kernels().gated_forward(gate_up_, Activation::silu, h_); }
  double seconds() const { return seconds_; }

 private:
  Bench& bench_;
  View gate_up_, h_;
  double seconds_;
};

// Products of adapters, which take little time. Every second number of rows is enough for them.
constexpr LayerSize kAdapterLayers[] = {{1024, 16}, {16, 1024}, {4096, 16}, {16, 4096}, {4096, 64}, {64, 4096}};
bool is_adapters(const LayerSize& layer) {
  return std::min(layer.in, layer.out) <= 64;
}

void measure_products(Bench& bench, Arrays& arrays, View moved, bool gpu, Arithmetic arithmetic, Machine& machine) {
  using enum ProductForm;
  const bool narrow = arithmetic == Arithmetic::bf16 || arithmetic == Arithmetic::f16;
  const DType type = arithmetic == Arithmetic::bf16 ? DType::bf16 : narrow ? DType::f16 : DType::f32;
  std::vector<int64_t> rows = gpu ? std::vector<int64_t>{256, 1024, 4096, 16384} : std::vector<int64_t>{32, 256, 1024};
  std::vector<LayerSize> layers =
      gpu ? std::vector<LayerSize>{{1024, 1024}, {1024, 4096}, {4096, 1024}, {4096, 4096}, {1024, 65536}}
          : std::vector<LayerSize>{{256, 256},   {256, 1024},  {1024, 256},  {1024, 1024},
                                   {1024, 4096}, {4096, 1024}, {1024, 32768}};
  if (gpu && arithmetic == Arithmetic::bf16) {  // the densest grid (product_rate())
    rows = {256, 512, 1024, 2048, 4096, 8192, 16384};
    layers = {{1024, 131072}, {4096, 131072}};
    for (const int64_t in : {768, 1536, 3072, 6144, 12288}) {
      for (const int64_t out : {768, 1536, 3072, 6144, 12288, 24576}) layers.push_back({in, out});
    }
    layers.push_back({24576, 6144});
    layers.insert(layers.end(), std::begin(kAdapterLayers), std::end(kAdapterLayers));
  }
  for (const LayerSize& layer : layers) {
    const int64_t in = layer.in, out = layer.out;  // clang 14 cannot capture structured bindings
    for (const int64_t n : rows) {
      if (gpu && !narrow && n > 4096) continue;  // slow, and rarely used
      if (is_adapters(layer) && n != 256 && n != 1024 && n != 4096 && n != 16384) continue;
      arrays.reset();
      if (!arrays.fits(bytes_of(n * in + n * out + in * out, type) + 4 * Device::kAlignment)) continue;
      const View x = arrays.take({n, in}, type), y = arrays.take({n, out}, type), w = arrays.take({out, in}, type);
      const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(out);
      constexpr double kMostCpuFlops = 1e10;  // a core takes about 0.1 s
      if (!gpu && flops > kMostCpuFlops) continue;
      const auto add = [&](ProductForm form, const std::function<void()>& work) {
        double seconds = bench.seconds_of(work, gpu ? 0.003 : 0.03);
        if (gpu) {
          // Products alone need more power than a step, and a GPU then lowers its clock. In a step, about a fifth of
          // the time goes to kernels that move data.
          const MovingKernel moving(bench, moved, machine, seconds / 4);
          seconds = bench.seconds_of([&] { work(), moving.run(); }, 0.009) - moving.seconds();
        }
        machine.products.push_back({arithmetic, form, n, in, out, flops / std::max(seconds, 1e-7)});
      };
      // Each product overwrites an array that another one reads. The values must stay random and finite.
      Kernels& ops = bench.kernels();
      for (const View& view : {x, y, w}) ops.fill_normal(view, 0, 0.02, 1, 3, 0);
      add(forward, [&] { ops.linear_forward({.x = x, .weight = w, .y = y}); });
      ops.fill_normal(y, 0, 0.02, 1, 4, 0);
      add(backward_input, [&] { ops.linear_backward_input({.d_y = y, .weight = w, .d_x = x}); });
      ops.fill_normal(x, 0, 0.02, 1, 5, 0);
      add(backward_weight, [&] { ops.linear_backward_weight(y, x, true, w); });
    }
  }
}

// Products with factors in 8 bits, as the layers of blocks have them: x has a scale for the terms of a row, the weight
// has one for a square. Leaves out all if the GPU's libraries have no such products.
void measure_products8(Bench& bench, Arrays& arrays, View moved, Machine& machine) {
  constexpr LayerSize kLayers[] = {{1024, 1024},  {1024, 4096},  {4096, 1024},  {4096, 4096},
                                   {2048, 16384}, {16384, 2048}, {4096, 24576}, {12288, 4096}};
  Kernels& ops = bench.kernels();
  if (!ops.refusal_of_float8().empty()) return;
  for (const auto& [in, out] : kLayers) {
    for (const int64_t n : {1024, 4096, 16384}) {
      arrays.reset();
      if (!arrays.fits(bytes_of(n * in + n * out + in * out, DType::bf16) * 2)) continue;
      const View x = arrays.take({n, in}, DType::bf16), y = arrays.take({n, out}, DType::bf16),
                 w = arrays.take({out, in}, DType::bf16);
      const auto in_8_bits = [&](View wide, bool squares) {
        ops.fill_normal(wide, 0, 0.02, 1, 3, 0);
        const Float8Matrix narrow{arrays.take(wide.shape, DType::e4m3),
                                  arrays.take(float8_scales(wide.shape[0], wide.shape[1], squares), DType::f32),
                                  squares};
        ops.quantize({.x = wide, .rows = narrow});
        return narrow;
      };
      const Float8Matrix x8 = in_8_bits(x, false), w8 = in_8_bits(w, true);
      const auto work = [&] { ops.linear_forward({.x = {}, .weight = {}, .x8 = x8, .weight8 = w8, .y = y}); };
      const MovingKernel moving(bench, moved, machine, bench.seconds_of(work, 0.003) / 4);
      const double seconds = bench.seconds_of([&] { work(), moving.run(); }, 0.01) - moving.seconds();
      const double flops = 2.0 * static_cast<double>(n) * static_cast<double>(in) * static_cast<double>(out);
      machine.products.push_back({Arithmetic::fp8, ProductForm::forward, n, in, out, flops / std::max(seconds, 1e-7)});
    }
  }
}

void measure_attention(Bench& bench, Arrays& arrays, bool gpu, DType type, Machine& machine) {
  struct Size {
    int64_t tokens, channels;
  };
  std::vector<Size> sizes{{16384, 2048}, {2048, 1024}};
  std::vector<int64_t> lengths{128, 512, 2048, 8192};
  if (!gpu) sizes = {{1024, 512}}, lengths = {64, 256, 1024};
  if (gpu && type == DType::f32) sizes = {{8192, 1024}, {1024, 512}}, lengths = {128, 512, 2048};
  arrays.reset();
  const std::vector<float> slopes(64, 0.01F);
  const View alibi = arrays.take({std::ssize(slopes)}, DType::f32);
  bench.device().copy_from_host(slopes.data(), alibi);
  const auto measure = [&](const AttentionShape& shape, int64_t tokens, int64_t length) {
    arrays.reset();
    arrays.take(alibi.shape, DType::f32);
    const int64_t B = tokens / length, channels = shape.channels();
    std::vector<int32_t> starts(static_cast<size_t>(B) + 1);
    for (int64_t b = 0; b <= B; ++b) starts[static_cast<size_t>(b)] = static_cast<int32_t>(b * length);
    const View starts_view = arrays.take({B + 1}, DType::i32);
    bench.device().copy_from_host(starts.data(), starts_view);
    const View qkv = arrays.take({tokens, 3 * channels}, type), d_qkv = arrays.take({tokens, 3 * channels}, type),
               o = arrays.take({tokens, channels}, type), d_o = arrays.take({tokens, channels}, type),
               log_sum_exp = arrays.take({tokens, shape.num_heads}, DType::f32);
    const int64_t elems = attention_workspace_elems(type, shape, tokens);
    const View workspace = elems > 0 ? arrays.take({elems}, DType::f32) : View{};
    // The arrays held other values before, perhaps no finite ones.
    for (const View& view : {qkv, o, d_o, log_sum_exp}) bench.kernels().fill_normal(view, 0, 0.02, 1, 6, 0);
    const double flops = static_cast<double>(B) * static_cast<double>(attention_forward_flops(length, channels));
    Kernels& ops = bench.kernels();
    const double budget_s = gpu ? 0.015 : 0.03;
    const double forward_s = bench.seconds_of(
        [&] {
          ops.attention_forward(
              {.qkv = qkv, .starts = starts_view, .shape = shape, .o = o, .log_sum_exp = log_sum_exp});
        },
        budget_s);
    const double backward_s = bench.seconds_of(
        [&] {
          ops.attention_backward({.qkv = qkv,
                                  .o = o,
                                  .log_sum_exp = log_sum_exp,
                                  .d_o = d_o,
                                  .starts = starts_view,
                                  .shape = shape,
                                  .d_qkv = d_qkv,
                                  .workspace = workspace});
        },
        budget_s);
    machine.attention.push_back({arithmetic_of(type, false), static_cast<bool>(shape.alibi_slopes), shape.head_dim,
                                 length, B * shape.num_heads, flops / forward_s, 2.5 * flops / backward_s});
  };
  for (const bool has_alibi : {false, true}) {
    for (const int64_t head_dim : {int64_t{64}, int64_t{128}}) {
      for (const Size& size : sizes) {
        for (const int64_t length : lengths) {
          if (length > size.tokens) continue;
          measure({.num_heads = size.channels / head_dim,
                   .head_dim = head_dim,
                   .layout = has_alibi ? QkvLayout::interleaved : QkvLayout::blocked,
                   .alibi_slopes = has_alibi ? alibi.rows(0, size.channels / head_dim) : View{}},
                  size.tokens, length);
        }
      }
    }
  }
}

void measure_memory(Bench& bench, Arrays& arrays, bool gpu, Machine& machine) {
  const DType type = gpu ? DType::bf16 : DType::f32;
  for (int64_t bytes = 3 << 12; bytes <= (gpu ? 3 << 28 : 3 << 25); bytes *= 4) {
    arrays.reset();
    const int64_t rows = 8, columns = bytes / 3 / rows / static_cast<int64_t>(size_of(type));
    if (!arrays.fits(2 * bytes)) break;
    const View gate_up = arrays.take({rows, 2 * columns}, type), h = arrays.take({rows, columns}, type);
    const double seconds =
        bench.seconds_of([&] { bench.kernels().gated_forward(gate_up, Activation::silu, h); }, gpu ? 0.02 : 0.03);
    machine.memory.push_back({gate_up.bytes() + h.bytes(), seconds});
  }
  // Noise may make a larger array faster.
  for (size_t i = machine.memory.size() - 1; i-- > 0;) {
    machine.memory[i].seconds = std::min(machine.memory[i].seconds, machine.memory[i + 1].seconds);
  }
}

void measure_launches(Bench& bench, Arrays& arrays, Machine& machine) {
  constexpr int kCalls = 2000;
  arrays.reset();
  const View small = arrays.take({256}, DType::f32);
  const auto calls = [&] {
    for (int i = 0; i < kCalls; ++i) bench.kernels().fill(small, 0.5);
  };
  calls();
  bench.device().compute_stream().synchronize();
  machine.launch_s = Bench::timed(calls) / kCalls;
  bench.device().compute_stream().synchronize();
}

void measure_copies(Bench& bench, Device& host, Machine& machine) {
  constexpr int64_t kBytes = int64_t{256} << 20;
  constexpr int kCopies = 8, kSmallCopies = 200;
  const Buffer here = host.allocate(kBytes, Category::staging),
               there = bench.device().allocate(kBytes, Category::staging);
  const View on_host = here.view({kBytes}, DType::u8), on_device = there.view({kBytes}, DType::u8);
  const std::unique_ptr<Stream> stream = bench.device().make_stream();
  const auto seconds_of = [&](View from, View to, int copies) {
    stream->copy(from, to);
    stream->synchronize();
    return Bench::timed([&] {
             for (int i = 0; i < copies; ++i) stream->copy(from, to);
             stream->synchronize();
           }) /
           copies;
  };
  machine.to_device_bytes_per_s = static_cast<double>(kBytes) / seconds_of(on_host, on_device, kCopies);
  machine.to_host_bytes_per_s = static_cast<double>(kBytes) / seconds_of(on_device, on_host, kCopies);
  machine.copy_s = seconds_of(on_host.rows(0, 4096), on_device.rows(0, 4096), kSmallCopies);
}

// AdamW as offloaded states have it: 16-bit parameters with their rests, in pieces. Every array has its own memory, as
// in a run: a device places arrays so that they do not compete for the same cache sets.
void measure_host(Device& host, Machine& machine) {
  constexpr int64_t kElems = int64_t{128} << 20, kPiece = int64_t{8} << 20;
  Bench bench(host);
  std::vector<Buffer> buffers;
  const auto array = [&](DType type) {
    buffers.push_back(host.allocate(bytes_of(kElems, type), Category::optimizer));
    return buffers.back().view({kElems}, type);
  };
  const View p = array(DType::bf16), r = array(rest_of(DType::bf16)), g = array(DType::bf16), m = array(DType::f32),
             v = array(DType::f32);
  for (const View& view : {p, g, m}) bench.kernels().fill_normal(view, 0, 0.01, 1, 1, 0);
  bench.kernels().fill(v, 1e-4);
  const auto rate_of = [&](AdamWWrites writes) {
    const AdamWStep step{.learning_rate = 1e-6, .writes = writes};
    const auto update = [&] {
      for (int64_t first = 0; first < kElems; first += kPiece) {
        const auto part = [&](View view) { return view.rows(first, first + kPiece); };
        bench.kernels().adamw(
            {.parameters = part(p), .rest = part(r), .gradients = part(g), .m = part(m), .v = part(v)}, step);
      }
    };
    const auto parameters = static_cast<double>(p.bytes() + r.bytes()),
               moments = static_cast<double>(m.bytes() + v.bytes());
    const double bytes = static_cast<double>(g.bytes()) + (writes == AdamWWrites::moments ? 1 : 2) * parameters +
                         (writes == AdamWWrites::parameters ? 1 : 2) * moments;
    return bytes / bench.seconds_of(update, 0.7);
  };
  machine.host_bytes_per_s = rate_of(AdamWWrites::all);
  const bool splits = bench.kernels().can_split_adamw();
  machine.host_parameters_bytes_per_s = splits ? rate_of(AdamWWrites::parameters) : machine.host_bytes_per_s;
  machine.host_moments_bytes_per_s = splits ? rate_of(AdamWWrites::moments) : machine.host_bytes_per_s;
}

// Leaves the rates at 0 if the folder cannot be written. Works in the nearest folder that exists, and creates none.
void measure_files(const std::string& folder, Machine& machine) {
  constexpr int64_t kBytes = int64_t{512} << 20, kBlock = int64_t{32} << 20;
  std::error_code error;
  std::filesystem::path existing = std::filesystem::absolute(folder, error).lexically_normal();
  while (!std::filesystem::is_directory(existing, error) && existing != existing.parent_path()) {
    existing = existing.parent_path();
  }
  std::string path = (existing / "tessera-measure-XXXXXX").string();
  const int file = mkostemp(path.data(), O_CLOEXEC);
  if (file < 0) return;
  unlink(path.c_str());
  std::vector<char> block(static_cast<size_t>(kBlock), 'x');
  bool failed = false;
  const auto all = [&](auto&& transfer) {
    return static_cast<double>(kBytes) / Bench::timed([&] {
             for (int64_t at = 0; at < kBytes && !failed; at += kBlock) failed = transfer(at) != kBlock;
             if (fdatasync(file) != 0) failed = true;
           });
  };
  const double writes = all([&](int64_t at) { return pwrite(file, block.data(), block.size(), at); });
  posix_fadvise(file, 0, kBytes, POSIX_FADV_DONTNEED);
  const double reads = all([&](int64_t at) { return pread(file, block.data(), block.size(), at); });
  close(file);
  if (!failed) machine.file_write_bytes_per_s = writes, machine.file_read_bytes_per_s = reads;
}

Machine::Link measure_link(Bench& bench, Communicator& world) {
  const std::unique_ptr<Stream> stream = bench.device().make_stream();
  const int64_t R = world.size();
  const auto seconds_of = [&](int64_t shard_bytes, int calls) {
    const Buffer buffer = bench.device().allocate(shard_bytes * R, Category::communication);
    const View full = buffer.view({shard_bytes / 4 * R}, DType::f32);
    const View shard = full.rows(world.rank() * shard_bytes / 4, (world.rank() + 1) * shard_bytes / 4);
    const auto gather = [&] { world.all_gather(shard, full, *stream, "a measured array"); };
    gather();
    stream->synchronize();
    world.barrier("the measurement of collectives");
    return Bench::timed([&] {
             for (int i = 0; i < calls; ++i) gather();
             stream->synchronize();
           }) /
           calls;
  };
  const int64_t large = int64_t{64} << 20;
  const double latency_s = seconds_of(1024, 20);
  return {latency_s, static_cast<double>(large * (R - 1)) / std::max(1e-9, seconds_of(large, 5) - latency_s)};
}

}  // namespace

Machine measure_machine(Device& device, Device& host, Communicator& world, int ranks_per_node, bool has_bf16,
                        int num_multiprocessors, std::string name, const std::string& folder) {
  const bool gpu = device.kind() == DeviceKind::cuda;
  Machine machine;
  machine.name = std::move(name);
  machine.source = "measured";
  machine.num_multiprocessors = num_multiprocessors;
  Bench bench(device);
  int64_t bytes = gpu ? int64_t{3} << 30 : int64_t{512} << 20;
  if (gpu) bytes = std::min(bytes, cuda_memory_of(device).usable_bytes / 2);
  {
    Arrays arrays(bench, bytes);
    measure_memory(bench, arrays, gpu, machine);
    Arrays moved(bench, gpu ? bytes / 6 : 4096);
    const View moved_view = moved.take({(gpu ? bytes / 6 : 4096) / 2}, DType::bf16);
    if (gpu) {
      measure_launches(bench, arrays, machine);
      for (const Arithmetic type : {Arithmetic::bf16, Arithmetic::f16}) {
        if (has_bf16 || type == Arithmetic::f16) measure_products(bench, arrays, moved_view, gpu, type, machine);
      }
      if (has_bf16) measure_products8(bench, arrays, moved_view, machine);
      measure_attention(bench, arrays, gpu, has_bf16 ? DType::bf16 : DType::f16, machine);
      Bench with_tf32(device, true);
      if (has_bf16) measure_products(with_tf32, arrays, moved_view, gpu, Arithmetic::tf32, machine);
    }
    measure_products(bench, arrays, moved_view, gpu, Arithmetic::f32, machine);
    measure_attention(bench, arrays, gpu, DType::f32, machine);
  }
  // The ranks of a node share its memory, links and disks, so they measure these at the same time.
  world.barrier("the measurement of the host");
  measure_host(host, machine);
  world.barrier("the measurement of copies");
  if (gpu) {
    measure_copies(bench, host, machine);
  } else {
    machine.to_device_bytes_per_s = machine.to_host_bytes_per_s = machine.host_bytes_per_s / 2;
  }
  world.barrier("the measurement of files");
  measure_files(folder, machine);
  for (double* rate : {&machine.host_bytes_per_s, &machine.host_parameters_bytes_per_s,
                       &machine.host_moments_bytes_per_s, &machine.to_device_bytes_per_s, &machine.to_host_bytes_per_s,
                       &machine.file_read_bytes_per_s, &machine.file_write_bytes_per_s}) {
    *rate = static_cast<double>(-world.max(-static_cast<int64_t>(*rate), "a measured rate"));
  }
  if (world.size() > ranks_per_node && ranks_per_node > 1 && world.size() % ranks_per_node == 0) {
    const auto node = world.split(world.rank() / ranks_per_node, world.rank() % ranks_per_node, ranks_per_node);
    machine.within_node = measure_link(bench, *node);
  }
  if (world.size() > 1) {
    Machine::Link& link = world.size() > ranks_per_node ? machine.between_nodes : machine.within_node;
    link = measure_link(bench, world);
  }
  return machine;
}

}  // namespace tessera
