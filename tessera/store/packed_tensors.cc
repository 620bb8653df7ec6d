#include "tessera/store/packed_tensors.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/math.h"

namespace tessera {

namespace {

constexpr int64_t kMostStateBytes = 1 << 16;
constexpr const char* kRemedy = "Save the model again with transformers and bitsandbytes, or give it in 16 bits";

// The words of "dtype": the types of weights before they were quantized.
constexpr std::pair<const char*, DType> kDtypes[] = {
    {"bfloat16", DType::bf16}, {"float16", DType::f16}, {"float32", DType::f32}};

int64_t blocks_of(const Shape& shape) {
  return ceil_divide(shape.num_elems(), kNf4BlockWeights);
}

nlohmann::json state_of(const TensorSource& source, const std::string& name) {
  const std::string state = PackedTensors::state_name(name);
  const int64_t bytes = source.get(state).num_elems();
  const auto refuse = [&] {
    return InputError(source.file_of(state), fmt::format("tensor \"{}\" is no object in JSON", state), kRemedy);
  };
  if (bytes > kMostStateBytes || source.get(state).dtype != DType::u8) throw refuse();
  std::string text(static_cast<size_t>(bytes), ' ');
  source.read_into(state, {reinterpret_cast<std::byte*>(text.data()), DType::u8, {bytes}});
  nlohmann::json json;
  try {
    json = parse_json<nlohmann::json>(text, state);
  } catch (const InputError&) {  // its message may quote bytes that are no text
    throw refuse();
  }
  if (!json.is_object()) throw refuse();
  return json;
}

// A table of the file must have the values of Tessera's, because groups do not hold it. The last bits may differ: torch
// computes the map of scales with or without FMA, depending on the processor.
template <size_t N>
bool has_table(const TensorSource& source, const std::string& name, const std::array<float, N>& table) {
  std::array<float, N> values;
  source.read_into(name, view_of(values.data(), {static_cast<int64_t>(N)}));
  constexpr float kTolerance = 4e-7f;
  return std::ranges::equal(values, table,
                            [](float a, float b) { return std::abs(a - b) <= kTolerance * std::abs(b); });
}

}  // namespace

bool PackedTensors::has(const TensorSource& source, const std::string& name) {
  return source.contains(state_name(name));
}

std::vector<std::pair<std::string, Shape>> PackedTensors::parts(const std::string& name, const Shape& shape) {
  const int64_t blocks = blocks_of(shape);
  return {{name, {ceil_divide(shape.num_elems(), int64_t{2}), 1}},
          {name + ".absmax", {blocks}},
          {name + ".nested_absmax", {ceil_divide(blocks, kNf4GroupBlocks)}},
          {name + ".quant_map", {std::ssize(kNf4Levels)}},
          {name + ".nested_quant_map", {256}}};
}

DType PackedTensors::unpacked_dtype(const TensorSource& source, const std::string& name) {
  const nlohmann::json state = state_of(source, name);
  const auto found = state.find("dtype");
  for (const auto& [word, dtype] : kDtypes) {
    if (found != state.end() && *found == word) return dtype;
  }
  throw InputError(source.file_of(name), fmt::format("tensor \"{}\" has an unsupported or wrong \"dtype\"", name),
                   kRemedy);
}

// Checks the small parts of a tensor at the first call.
float PackedTensors::scale_mean(const std::string& name, const Shape& shape) const {
  if (const auto known = means_.find(name); known != means_.end()) return known->second;
  const nlohmann::json state = state_of(source_, name);
  const auto is = [&](const char* key, const nlohmann::json& wanted) {
    const auto found = state.find(key);
    return found != state.end() && *found == wanted;
  };
  nlohmann::json dims = nlohmann::json::array();
  for (int i = 0; i < shape.rank(); ++i) dims.push_back(shape[i]);
  const auto offset = state.find("nested_offset");
  const bool has_mean =
      offset != state.end() && offset->is_number() && std::isfinite(static_cast<float>(offset->get<double>()));
  const char* const fault = !is("quant_type", "nf4")                                           ? "quant_type"
                            : !is("blocksize", kNf4BlockWeights)                               ? "blocksize"
                            : !is("nested_blocksize", kNf4GroupBlocks)                         ? "nested_blocksize"
                            : !is("nested_dtype", "float32")                                   ? "nested_dtype"
                            : !is("shape", dims)                                               ? "shape"
                            : !has_mean                                                        ? "nested_offset"
                            : !has_table(source_, name + ".quant_map", kNf4Levels)             ? "quant_map"
                            : !has_table(source_, name + ".nested_quant_map", nf4_scale_map()) ? "nested_quant_map"
                                                                                               : nullptr;
  if (fault) {
    throw InputError(source_.file_of(name),
                     fmt::format("tensor \"{}\" has an unsupported or wrong \"{}\"", name, fault), kRemedy);
  }
  return means_[name] = static_cast<float>(offset->get<double>());
}

void PackedTensors::read_groups(const std::string& name, const Shape& shape, int64_t first, int64_t last,
                                Nf4Group* groups) const {
  const float mean = scale_mean(name, shape);
  const int64_t bytes = ceil_divide(shape.num_elems(), int64_t{2}), blocks = blocks_of(shape);
  std::vector<float> ranges(static_cast<size_t>(last - first));
  source_.read_range_into(name + ".nested_absmax", first, last, view_of(ranges.data(), {last - first}));
  for (const float range : ranges) {
    if (range >= 0) continue;
    throw InputError(source_.file_of(name), fmt::format("tensor \"{}.nested_absmax\" has the value {}", name, range),
                     kRemedy);
  }
  // The bytes of a part: each group has `most` of them.
  const auto read = [&](const std::string& part, int64_t total, int64_t most, uint8_t zero) {
    const int64_t begin = first * most, end = std::min(total, last * most);
    std::vector<uint8_t> data(static_cast<size_t>((last - first) * most), zero);
    source_.read_range_into(part, begin, end, view_of(data.data(), {end - begin}));
    return data;
  };
  const std::vector<uint8_t> codes = read(name, bytes, std::tuple_size_v<decltype(Nf4Group::codes)>, kNf4ZeroPair),
                             scales = read(name + ".absmax", blocks, kNf4GroupBlocks, kNf4ZeroScale);
  for (size_t g = 0; g < ranges.size(); ++g) {
    Nf4Group& group = groups[g] = {};
    std::copy_n(codes.begin() + static_cast<ptrdiff_t>(g * group.codes.size()), group.codes.size(),
                group.codes.begin());
    std::copy_n(scales.begin() + static_cast<ptrdiff_t>(g * group.scales.size()), group.scales.size(),
                group.scales.begin());
    group.scale_range = ranges[g];
    group.scale_mean = mean;
  }
}

void PackedTensors::read(const std::string& name, const Shape& shape, int64_t begin, int64_t end, View values) const {
  read_nf4(
      begin, end, [&](int64_t first, int64_t last, Nf4Group* groups) { read_groups(name, shape, first, last, groups); },
      values);
}

}  // namespace tessera
