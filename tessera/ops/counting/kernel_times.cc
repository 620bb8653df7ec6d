#include "tessera/ops/counting/kernel_times.h"

namespace tessera {

void KernelTimes::arrays(const char* name, std::initializer_list<View> arrays, double passes) {
  if (!timeline_) return;
  double bytes = 0;
  for (const View& array : arrays) bytes += static_cast<double>(array.bytes());
  const bool gpu = counted_by(device_).kind == DeviceKind::cuda;
  spend_on_kernel(device_, name, Busy::memory,
                  memory_time(timeline_->machine(), passes * bytes) + (gpu ? kStartOfKernel_s : 0));
}

void KernelTimes::product(ProductForm form, View rows, int64_t out) {
  if (!timeline_ || rows.num_elems() == 0) return;
  const int64_t N = rows.shape[0], in = rows.shape[1];
  const Arithmetic type = arithmetic_of(rows.dtype, tf32_);
  double& rate = product_rates_[{static_cast<int64_t>(type), static_cast<int64_t>(form), N, in, out}];
  if (rate == 0) rate = product_rate(timeline_->machine(), type, form, N, in, out);
  constexpr const char* names[] = {"linear_forward", "linear_backward_input", "linear_backward_weight"};
  spend_on_kernel(device_, names[static_cast<size_t>(form)], Busy::products,
                  static_cast<double>(linear_flops(N, in, out)) / rate);
}

// The backward pass of a GPU gives each thread block some keys of a head, for all queries that see them. With few heads
// of keys, there may be fewer blocks than multiprocessors, and the longest block determines the time.
void KernelTimes::attention(const AttentionShape& shape, View qkv, int64_t num_sequences, bool backward) {
  if (!timeline_ || qkv.num_elems() == 0 || num_sequences == 0) return;
  constexpr int64_t kBlockKeys = 128;
  constexpr double kBackward = 2.5;
  const Machine& machine = timeline_->machine();
  const int64_t length = std::max<int64_t>(1, qkv.shape[0] / num_sequences), D = shape.head_dim;
  const auto forward_flops = static_cast<double>(attention_forward_flops(length, shape.channels(), shape.window));
  const auto rate_of = [&](int64_t of_length, int64_t heads) {
    return attention_rate(machine,
                          {.type = arithmetic_of(qkv.dtype, tf32_),
                           .alibi = static_cast<bool>(shape.alibi_slopes),
                           .head_dim = D,
                           .length = of_length,
                           .heads = heads,
                           .forward_flops_per_s = 0,
                           .backward_flops_per_s = 0},
                          backward);
  };
  const double rate = rate_of(length, num_sequences * shape.num_heads);
  double seconds = (backward ? kBackward : 1) * static_cast<double>(num_sequences) * forward_flops / rate;
  if (backward && machine.num_multiprocessors > 0) {
    const int64_t queries = shape.window > 0 ? std::min(length, shape.window + kBlockKeys) : length;
    const auto block_flops =
        static_cast<double>(4 * D * std::min(kBlockKeys, length) * queries * (shape.num_heads / shape.kv_heads()));
    // A block that does not wait for others computes as fast as a full GPU does with long sequences.
    constexpr int64_t kLong = 8192, kManyHeads = 1024;
    seconds = std::max(seconds, kBackward * block_flops / (rate_of(kLong, kManyHeads) / machine.num_multiprocessors));
  }
  if (counted_by(device_).kind == DeviceKind::cuda) seconds += (backward ? 2 : 1) * kStartOfKernel_s;
  spend_on_kernel(device_, backward ? "attention_backward" : "attention_forward", Busy::attention, seconds);
}

void KernelTimes::adamw(const Kernels::AdamWArrays& a, AdamWWrites writes) {
  if (!timeline_) return;
  const auto bytes_of = [](std::initializer_list<View> views) {
    double bytes = 0;
    for (const View& view : views) bytes += static_cast<double>(view.bytes());
    return bytes;
  };
  const double parameters = bytes_of({a.parameters, a.rest}), moments = bytes_of({a.m, a.v});
  double bytes = bytes_of({a.gradients}) + parameters + moments;
  if (writes != AdamWWrites::moments) bytes += parameters;
  if (writes != AdamWWrites::parameters) bytes += moments;
  const Machine& machine = timeline_->machine();
  const double host_rate = writes == AdamWWrites::all          ? machine.host_bytes_per_s
                           : writes == AdamWWrites::parameters ? machine.host_parameters_bytes_per_s
                                                               : machine.host_moments_bytes_per_s;
  const bool gpu = counted_by(device_).kind == DeviceKind::cuda;
  spend_on_kernel(device_, "adamw", Busy::memory,
                  gpu ? memory_time(machine, 1.05 * bytes) + kStartOfKernel_s : bytes / host_rate);
}

}  // namespace tessera
