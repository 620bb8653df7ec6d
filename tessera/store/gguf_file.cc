#include "tessera/store/gguf_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstring>

#include "tessera/base/error.h"
#include "tessera/base/finite.h"
#include "tessera/base/math.h"
#include "tessera/base/option_names.h"

namespace tessera {

static_assert(std::endian::native == std::endian::little, "GGUF files are little-endian");

namespace {

constexpr uint32_t kGgufVersion = 3;
constexpr uint64_t kAlignment = 32;  // of tensors: the value that readers assume if no key names another one

template <typename T>
void append_number(std::string& out, T value) {
  out.append(reinterpret_cast<const char*>(&value), sizeof(value));
}

void append_text(std::string& out, std::string_view text) {
  append_number(out, uint64_t{text.size()});
  out += text;
}

// The numbers of the types of values in the format.
template <typename T>
constexpr uint32_t number_of_type() {
  if constexpr (std::is_same_v<T, uint32_t>) return 4;
  if constexpr (std::is_same_v<T, int32_t>) return 5;
  if constexpr (std::is_same_v<T, float>) return 6;
  if constexpr (std::is_same_v<T, bool>) return 7;
  if constexpr (std::is_same_v<T, std::string>) return 8;
}
constexpr uint32_t kArray = 9;

template <typename T>
void append_value(std::string& out, const T& value) {
  if constexpr (std::is_same_v<T, std::string>) {
    append_text(out, value);
  } else if constexpr (std::is_same_v<T, bool>) {
    out += static_cast<char>(value);
  } else {
    append_number(out, value);
  }
}

void append_typed(std::string& out, const auto& value) {
  using T = std::remove_cvref_t<decltype(value)>;
  append_number(out, number_of_type<T>());
  append_value(out, value);
}

template <typename T>
void append_typed(std::string& out, const std::vector<T>& values) {
  append_number(out, kArray);
  append_number(out, number_of_type<T>());
  append_number(out, uint64_t{values.size()});
  for (const T& value : values) append_value(out, value);
}

int64_t width_of(const Shape& shape) {
  return shape[shape.rank() - 1];
}

// The steps of the rounding are the reference's in llama.cpp, in f32, so that both give the same bits.
void to_q8_block(const float* values, std::byte* target) {
  float largest = 0;
  for (int64_t i = 0; i < kQ8Values; ++i) largest = std::max(largest, std::abs(values[i]));
  const float scale = largest / 127.0f, inverse = scale == 0 ? 0.0f : 1.0f / scale;
  const uint16_t scale_bits = f32_to_f16(scale);
  std::memcpy(target, &scale_bits, sizeof(scale_bits));
  for (int64_t i = 0; i < kQ8Values; ++i) {
    target[sizeof(scale_bits) + static_cast<size_t>(i)] =
        static_cast<std::byte>(static_cast<int8_t>(std::round(values[i] * inverse)));
  }
}

DType dtype_of_gguf(GgufType type) {
  TESSERA_ASSERT(type != GgufType::q8_0);
  return type == GgufType::f32 ? DType::f32 : type == GgufType::f16 ? DType::f16 : DType::bf16;
}

// The index of the first value that the type cannot hold, or −1.
int64_t find_too_large(View values, GgufType type) {
  if (type != GgufType::q8_0) return find_non_finite(values, dtype_of_gguf(type));
  const float* const x = values.as<float>();
  const auto largest = static_cast<float>(127 * largest_of(DType::f16));
  for (int64_t i = 0; i < values.num_elems(); ++i) {
    if (!(std::abs(x[i]) <= largest)) return i;
  }
  return -1;
}

}  // namespace

const char* name_of(GgufType type) {
  switch (type) {
    case GgufType::f32:
      return "F32";
    case GgufType::f16:
      return "F16";
    case GgufType::q8_0:
      return "Q8_0";
    case GgufType::bf16:
      return "BF16";
  }
  return "?";
}

int64_t gguf_row_bytes(GgufType type, int64_t width) {
  if (type != GgufType::q8_0) return width * static_cast<int64_t>(size_of(dtype_of_gguf(type)));
  TESSERA_ASSERT(width % kQ8Values == 0);
  return width / kQ8Values * (2 + kQ8Values);
}

void to_gguf(const float* values, int64_t count, GgufType type, std::byte* target) {
  if (type != GgufType::q8_0) {
    convert(values, DType::f32, target, dtype_of_gguf(type), static_cast<size_t>(count));
    return;
  }
  TESSERA_ASSERT(count % kQ8Values == 0);
  for (int64_t i = 0; i < count; i += kQ8Values) to_q8_block(values + i, target + gguf_row_bytes(type, i));
}

GgufFile::Layout GgufFile::lay_out(const GgufKeys& keys, std::vector<GgufTensor> tensors) {
  Layout layout;
  std::string& header = layout.header;
  header = "GGUF";
  append_number(header, kGgufVersion);
  append_number(header, uint64_t{tensors.size()});
  append_number(header, uint64_t{keys.size()});
  for (const GgufKey& key : keys) {
    append_text(header, key.name);
    std::visit([&](const auto& value) { append_typed(header, value); }, key.value);
  }
  uint64_t reached = 0;  // from the end of the header
  for (GgufTensor& tensor : tensors) {
    const Shape& shape = tensor.shape;
    append_text(header, tensor.name);
    append_number(header, static_cast<uint32_t>(shape.rank()));
    for (int i = shape.rank() - 1; i >= 0; --i) append_number(header, static_cast<uint64_t>(shape[i]));
    append_number(header, static_cast<uint32_t>(tensor.type));
    append_number(header, reached);
    const int64_t width = width_of(shape), bytes = shape.num_elems() / width * gguf_row_bytes(tensor.type, width);
    layout.places.push_back({std::move(tensor), reached, false});
    reached += round_up(static_cast<uint64_t>(bytes), kAlignment);
  }
  header.resize(round_up(uint64_t{header.size()}, kAlignment), '\0');
  for (Place& place : layout.places) place.begin += header.size();
  layout.bytes = header.size() + reached;
  return layout;
}

GgufFile::GgufFile(const std::filesystem::path& path, const GgufKeys& keys, std::vector<GgufTensor> tensors)
    : GgufFile(path, lay_out(keys, std::move(tensors))) {}

GgufFile::GgufFile(const std::filesystem::path& path, Layout layout)
    : path_(path), places_(std::move(layout.places)), file_(path, layout.bytes) {
  file_.write_at(layout.header.data(), layout.header.size(), 0);
}

void GgufFile::write(std::string_view name, View values, const GgufRows& rows, ThreadPool& pool) {
  const auto place = std::ranges::find_if(places_, [&](const Place& p) { return p.tensor.name == name; });
  TESSERA_ASSERT(place != places_.end() && !place->written);
  const GgufTensor& tensor = place->tensor;
  TESSERA_ASSERT(values.num_elems() == tensor.shape.num_elems());
  // A bias has one value per row of its weight, so its values move as the rows of the weight do. Each thread converts a
  // few rows at a time, which stay in its cache.
  constexpr int64_t kChunkElems = 1 << 18;
  const int64_t width = tensor.shape.rank() == 1 ? 1 : width_of(tensor.shape);
  const int64_t num_rows = values.num_elems() / width, row_bytes = gguf_row_bytes(tensor.type, width);
  const int64_t step = std::max<int64_t>(1, kChunkElems / width);
  const float* const x = values.as<float>();
  pool.run(ceil_divide(num_rows, step), [&](int64_t task) {
    const int64_t first = task * step, last = std::min(num_rows, first + step);
    std::vector<std::byte> bytes(static_cast<size_t>((last - first) * row_bytes));
    for (int64_t row = first; row < last; ++row) {
      const int64_t source = rows.source_of(row);
      const View part = {values.data + source * width * static_cast<int64_t>(sizeof(float)), DType::f32, {width}};
      if (const int64_t found = find_too_large(part, tensor.type); found >= 0) {
        const float value = x[source * width + found];
        throw RunError(path_,
                       fmt::format("is not written: tensor \"{}\" has the value {}, which {} cannot hold", tensor.name,
                                   value, name_of(tensor.type)),
                       std::isfinite(value) ? "Give " + option("gguf") + " f32"
                                            : "The weights are damaged: use an earlier checkpoint of the run");
      }
      to_gguf(x + source * width, width, tensor.type, bytes.data() + (row - first) * row_bytes);
    }
    file_.write_at(bytes.data(), bytes.size(), place->begin + static_cast<uint64_t>(first * row_bytes));
  });
  place->written = true;
}

void GgufFile::commit() {
  TESSERA_ASSERT(std::ranges::all_of(places_, [](const Place& place) { return place.written; }));
  file_.commit();
}

}  // namespace tessera
