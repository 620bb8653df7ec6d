#include "tessera/engine/own_loss.h"

#include <algorithm>

#include "tessera/base/dtype.h"
#include "tessera/base/error.h"

namespace tessera {

void HostLoss::begin(const PackedBatch& batch) {
  targets_.clear();
  positions_.clear();
  rows_.clear();
  for (size_t b = 0; b + 1 < batch.starts.size(); ++b) {
    for (int32_t i = batch.starts[b]; i < batch.starts[b + 1]; ++i) {
      const int32_t label = batch.labels[static_cast<size_t>(i)];
      if (label < 0) continue;
      targets_.push_back(label);
      positions_.push_back(i - batch.starts[b]);
      rows_.push_back(batch.row_numbers.empty() ? -1 : batch.row_numbers[b]);
    }
  }
}

void HostLoss::compute(View logits, int64_t begin, double d_scale, View loss) {
  const int64_t num_rows = logits.shape[0], vocab_size = logits.shape[1];
  const auto count = static_cast<size_t>(logits.num_elems()), first = static_cast<size_t>(begin);
  TESSERA_ASSERT(first + static_cast<size_t>(num_rows) <= targets_.size());
  const bool in_place = device_.host_visible() && logits.dtype == DType::f32;
  const std::byte* on_device = logits.data;
  if (!in_place) {
    values_.resize(count);
    if (!device_.host_visible()) {
      bytes_.resize(static_cast<size_t>(logits.bytes()));
      device_.copy_to_host(logits, bytes_.data());
      on_device = bytes_.data();
    }
    convert(on_device, logits.dtype, values_.data(), DType::f32, count);
  }
  LossRows chunk{.num_rows = num_rows,
                 .vocab_size = vocab_size,
                 .logits = in_place ? logits.as<float>() : values_.data(),
                 .targets = targets_.data() + first,
                 .positions = positions_.data() + first,
                 .rows = rows_.data() + first,
                 .d_scale = d_scale};
  chunk.cross_entropy = [&](int64_t from, int64_t rows, double weight) {
    double sum = 0;
    const auto view = [](auto* data, DType dtype, Shape shape) {
      return View{reinterpret_cast<std::byte*>(data), dtype, shape};
    };
    ops_.softmax_cross_entropy(view(chunk.logits + from * vocab_size, DType::f32, {rows, vocab_size}),
                               view(targets_.data() + static_cast<int64_t>(first) + from, DType::i32, {rows}),
                               d_scale * weight, view(&sum, DType::f64, {1}));
    if (weight == 0 && d_scale != 0) std::fill_n(chunk.logits + from * vocab_size, rows * vocab_size, 0.0f);
    return sum * weight;
  };
  double sum = function_(chunk);
  if (!in_place && d_scale != 0) {
    if (device_.host_visible()) {
      convert(values_.data(), DType::f32, logits.data, logits.dtype, count);
    } else {
      convert(values_.data(), DType::f32, bytes_.data(), logits.dtype, count);
      device_.copy_from_host(bytes_.data(), logits);
    }
  }
  double total = 0;
  device_.copy_to_host(loss, &total);
  sum += total;
  device_.copy_from_host(&sum, loss);
}

}  // namespace tessera
