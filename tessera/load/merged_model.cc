#include "tessera/load/merged_model.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <mutex>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/math.h"
#include "tessera/base/option_names.h"

namespace tessera {

namespace {

bool has_layer(const Model& model, const std::string& path) {
  const std::vector<std::string>& layers = model.adapted_layers();
  return std::ranges::find(layers, path) != layers.end();
}

}  // namespace

MergedModel::MergedModel(const Model& adapted, const Model& plain, ReadTensor read, ThreadPool& pool)
    : adapted_(adapted), plain_(plain), read_(std::move(read)), pool_(pool) {
  for (const std::string& head : adapted.tolerated_names()) {
    if (!has_layer(adapted, layer_of_tensor(head))) continue;
    throw UsageError(option_place("merge"),
                     fmt::format("the adapter changes {}, which is tied to the embedding", layer_of_tensor(head)),
                     "A merged model would also have a changed embedding. Use the adapter without merging it");
  }
}

void MergedModel::read(Section section, int64_t unit, const SavedType& saved_type, View values) {
  const AdapterOptions& options = *adapted_.config().adapter;
  const ParameterTable& table = plain_.unit(unit).table();
  table.for_each_tensor(section, 0, table.num_elems(section), [&](const ParameterSpec& spec, int64_t, int64_t end) {
    const View tensor = values.rows(spec.offset, spec.offset + end);
    read_(spec.name, 0, end, tensor);
    const std::string path = plain_.file_name(spec.name), layer = layer_of_tensor(spec.name);
    if (spec.shape.rank() != 2 || !has_layer(adapted_, layer_of_tensor(path))) return;
    const auto adapter = adapter_of_layer(options, layer_of_tensor(path), !plain_.is_block(unit));
    add(layer, *adapter, spec, saved_type(spec.name), tensor);
  });
}

// Sums in f32. The writer of the model rounds the sums once, as `saved`.
void MergedModel::add(const std::string& layer, const LayerAdapter& adapter, const ParameterSpec& weight, DType saved,
                      View values) {
  const int64_t out = weight.shape[0], in = weight.shape[1], rank = adapter.rank;
  std::vector<float> a(static_cast<size_t>(rank * in)), b(static_cast<size_t>(out * rank));
  read_(layer + ".lora_A.weight", 0, rank * in, {reinterpret_cast<std::byte*>(a.data()), DType::f32, {rank * in}});
  read_(layer + ".lora_B.weight", 0, out * rank, {reinterpret_cast<std::byte*>(b.data()), DType::f32, {out * rank}});
  std::mutex mutex;
  RoundingLoss largest{weight.name, 0, 0};
  constexpr int64_t kRows = 16;  // of a task
  pool_.run(ceil_divide(out, kRows), [&](int64_t task) {
    std::vector<float> change(static_cast<size_t>(in)), rounded(static_cast<size_t>(in));
    std::vector<std::byte> narrow(static_cast<size_t>(in) * size_of(saved));
    double lost = 0, most = 0;
    for (int64_t o = task * kRows; o < std::min(out, (task + 1) * kRows); ++o) {
      std::ranges::fill(change, 0.0f);
      for (int64_t r = 0; r < rank; ++r) {
        const float factor = b[static_cast<size_t>(o * rank + r)];
        const float* const row = a.data() + r * in;
        for (int64_t i = 0; i < in; ++i) change[static_cast<size_t>(i)] += factor * row[i];
      }
      float* const sums = values.as<float>() + o * in;
      for (int64_t i = 0; i < in; ++i) {
        const float added = static_cast<float>(adapter.scale) * change[static_cast<size_t>(i)];
        sums[i] += added;
        most = std::max(most, std::abs(static_cast<double>(added)));
      }
      convert(sums, DType::f32, narrow.data(), saved, static_cast<size_t>(in));
      convert(narrow.data(), saved, rounded.data(), DType::f32, static_cast<size_t>(in));
      for (int64_t i = 0; i < in; ++i) {
        lost = std::max(lost,
                        std::abs(static_cast<double>(sums[i]) - static_cast<double>(rounded[static_cast<size_t>(i)])));
      }
    }
    const std::lock_guard lock(mutex);
    largest.lost = std::max(largest.lost, lost);
    largest.change = std::max(largest.change, most);
  });
  if (largest.lost > loss_.lost) loss_ = largest;
}

}  // namespace tessera
