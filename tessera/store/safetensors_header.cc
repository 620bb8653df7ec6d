// Parses and validates safetensors headers.
#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cstring>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tessera/base/git_lfs.h"
#include "tessera/store/safetensors.h"

namespace tessera {

namespace {

constexpr uint64_t kLongestHeader = 100'000'000;

struct DTypeEntry {
  std::string_view word;
  unsigned bits;
  std::optional<DType> dtype;
};
// Every type of the format. A header may contain tensors of a type without a DType, but Tessera cannot read such
// tensors.
constexpr std::array kDTypeEntries = std::to_array<DTypeEntry>({
    {"F64", 64, DType::f64}, {"F32", 32, DType::f32}, {"F16", 16, DType::f16}, {"BF16", 16, DType::bf16},
    {"I64", 64, DType::i64}, {"I32", 32, DType::i32}, {"U8", 8, DType::u8},    {"I16", 16, {}},
    {"I8", 8, {}},           {"U64", 64, {}},         {"U32", 32, {}},         {"U16", 16, {}},
    {"BOOL", 8, {}},         {"F8_E5M2", 8, {}},      {"F8_E4M3", 8, {}},      {"F8_E8M0", 8, {}},
    {"F8_E4M3FNUZ", 8, {}},  {"F8_E5M2FNUZ", 8, {}},  {"F6_E2M3", 6, {}},      {"F6_E3M2", 6, {}},
    {"F4", 4, {}},           {"C64", 64, {}},
});

// Receives the events of the JSON parser and checks each event immediately. No tree of the JSON is built, so a hostile
// header cannot fill the memory.
//
// Accepts the same headers as the library safetensors (0.8): unknown keys of a tensor, "__metadata__": null, and keys
// that occur twice in __metadata__. Exceptions: the library also accepts a tensor as a list, a type as an object, and
// dimensions above 2^63. No program writes these.
class HeaderReader : public nlohmann::json_sax<nlohmann::json> {
 public:
  HeaderReader(SafetensorsHeader& header, const std::string& where) : header_(header), where_(where) {}

  bool start_object(size_t) override {
    enter();
    if (ignores()) {
      ++ignored_depth_;
    } else if (state_ == State::before) {
      state_ = State::header;
    } else if (state_ == State::header && key_ == "__metadata__") {
      see_metadata();
      state_ = State::metadata;
    } else if (state_ == State::header) {
      tensor_ = {};
      tensor_.name = key_;
      dtype_seen_ = shape_seen_ = offsets_seen_ = false;
      state_ = State::tensor;
    } else {
      unexpected("an object");
    }
    return true;
  }

  bool key(std::string& name) override {
    key_ = std::move(name);
    return true;
  }

  bool string(std::string& value) override {
    if (ignores()) return true;
    if (state_ == State::metadata) {
      header_.metadata[key_] = std::move(value);
    } else if (state_ == State::tensor && key_ == "dtype") {
      once(dtype_seen_);
      tensor_.dtype_name = std::move(value);
    } else {
      unexpected("a string");
    }
    return true;
  }

  bool start_array(size_t) override {
    enter();
    if (ignores()) {
      ++ignored_depth_;
    } else if (state_ == State::tensor && key_ == "shape") {
      once(shape_seen_);
      state_ = State::shape;
    } else if (state_ == State::tensor && key_ == "data_offsets") {
      once(offsets_seen_);
      offsets_.clear();
      state_ = State::offsets;
    } else {
      unexpected("an array");
    }
    return true;
  }

  bool number_unsigned(uint64_t value) override {
    if (ignores()) return true;
    if (state_ == State::shape && value <= INT64_MAX) {
      tensor_.dims.push_back(static_cast<int64_t>(value));
    } else if (state_ == State::offsets && offsets_.size() < 2) {
      offsets_.push_back(value);
    } else {
      unexpected(fmt::format("the number {}", value));
    }
    return true;
  }

  bool end_array() override {
    if (!leave()) state_ = State::tensor;
    return true;
  }

  bool end_object() override {
    if (leave()) return true;
    if (state_ == State::tensor) finish_tensor();
    state_ = state_ == State::header ? State::after : State::header;
    return true;
  }

  bool null() override {
    if (state_ == State::header && key_ == "__metadata__") {
      see_metadata();
      return true;
    }
    return ignored_or_unexpected("null");
  }
  bool boolean(bool) override { return ignored_or_unexpected("a boolean"); }
  bool number_integer(int64_t value) override { return ignored_or_unexpected(fmt::format("the number {}", value)); }
  bool number_float(double, const std::string& text) override {
    return ignored_or_unexpected("the number " + printable(text));
  }
  bool binary(nlohmann::json::binary_t&) override { unexpected("binary data"); }
  bool parse_error(size_t byte, const std::string&, const nlohmann::json::exception&) override {
    fail(fmt::format("is not valid JSON in UTF-8 at byte {}", byte));
  }

 private:
  enum class State { before, header, metadata, tensor, shape, offsets, after };

  [[noreturn]] void fail(const std::string& what) const {
    throw InputError(where_, "the safetensors header " + what, "Copy or convert the file again");
  }
  [[noreturn]] void fail_tensor(const std::string& what) const {
    fail(fmt::format("is wrong at tensor \"{}\": {}", printable(tensor_.name), what));
  }
  [[noreturn]] void unexpected(const std::string& what) const {
    fail(fmt::format("has an invalid value after the key \"{}\": {}", printable(key_), what));
  }
  bool ignored_or_unexpected(const std::string& what) const {
    if (!ignores()) unexpected(what);
    return true;
  }
  // Whether the next value belongs to an unknown key of a tensor.
  bool ignores() const {
    const bool is_known = key_ == "dtype" || key_ == "shape" || key_ == "data_offsets";
    return ignored_depth_ > 0 || (state_ == State::tensor && !is_known);
  }
  void enter() {
    constexpr int kDeepest = 127;
    if (++depth_ > kDeepest) fail(fmt::format("is nested deeper than {} levels", kDeepest));
  }
  // Leaves an object or an array. Returns whether it was inside an ignored value, or was one.
  bool leave() {
    --depth_;
    if (ignored_depth_ == 0) return false;
    --ignored_depth_;
    return true;
  }
  void see_metadata() {
    if (metadata_seen_) fail("has __metadata__ twice");
    metadata_seen_ = true;
  }
  void once(bool& seen) const {
    if (seen) fail_tensor(fmt::format("the key \"{}\" occurs twice", key_));
    seen = true;
  }
  void finish_tensor();

  SafetensorsHeader& header_;
  const std::string& where_;
  State state_ = State::before;
  std::string key_;
  TensorInfo tensor_;
  std::vector<uint64_t> offsets_;
  int depth_ = 0, ignored_depth_ = 0;  // ignored_depth_: open objects and arrays of the ignored value
  bool metadata_seen_ = false, dtype_seen_ = false, shape_seen_ = false, offsets_seen_ = false;
};

// Checks that a tensor has a known type and two offsets.
void HeaderReader::finish_tensor() {
  if (!dtype_seen_ || !shape_seen_ || !offsets_seen_) fail_tensor("dtype, shape or data_offsets is missing");
  const auto type = std::find_if(kDTypeEntries.begin(), kDTypeEntries.end(),
                                 [&](const DTypeEntry& known) { return known.word == tensor_.dtype_name; });
  if (type == kDTypeEntries.end()) fail_tensor(fmt::format("unknown dtype \"{}\"", printable(tensor_.dtype_name)));
  tensor_.dtype = type->dtype;
  if (offsets_.size() != 2) fail_tensor("data_offsets must hold two numbers");
  tensor_.begin = offsets_[0];
  tensor_.end = offsets_[1];
  header_.tensors.push_back(std::move(tensor_));
}

// Describes the first error in the offsets of a tensor, which must give as many bytes as its shape and type need.
// Returns "" if there is none.
std::string fault_of(const TensorInfo& tensor) {
  if (tensor.begin > tensor.end) {
    return fmt::format("data_offsets run backwards: [{}, {}]", tensor.begin, tensor.end);
  }
  int64_t elems = 1;
  for (const int64_t dim : tensor.dims) {
    if (__builtin_mul_overflow(elems, dim, &elems)) return "its shape overflows";
  }
  const auto* const type = std::ranges::find(kDTypeEntries, tensor.dtype_name, &DTypeEntry::word);
  uint64_t bits = 0;
  if (__builtin_mul_overflow(static_cast<uint64_t>(elems), uint64_t{type->bits}, &bits)) return "its shape overflows";
  if (bits % 8 == 0 && bits / 8 == tensor.end - tensor.begin) return "";
  return fmt::format("its shape and type need {} bits, but its data_offsets give {} bytes", bits,
                     tensor.end - tensor.begin);
}

// If a name occurs several times, only its last tensor counts, as in the library.
void keep_last_of_each_name(std::vector<TensorInfo>& tensors) {
  std::reverse(tensors.begin(), tensors.end());
  std::stable_sort(tensors.begin(), tensors.end(),
                   [](const TensorInfo& a, const TensorInfo& b) { return a.name < b.name; });
  const auto same_name = [](const TensorInfo& a, const TensorInfo& b) { return a.name == b.name; };
  tensors.erase(std::unique(tensors.begin(), tensors.end(), same_name), tensors.end());
}

// Checks each tensor, and that the tensors cover each of the bytes [0, data_bytes) exactly once. Sorts the tensors by
// their bytes.
void check_tiling(SafetensorsHeader& header, uint64_t data_bytes, const std::string& where) {
  const std::string remedy = "Copy or convert the file again";
  keep_last_of_each_name(header.tensors);
  std::sort(header.tensors.begin(), header.tensors.end(), [](const TensorInfo& a, const TensorInfo& b) {
    return std::tie(a.begin, a.end, a.name) < std::tie(b.begin, b.end, b.name);
  });
  uint64_t reached = 0;
  for (const auto& tensor : header.tensors) {
    if (const std::string fault = fault_of(tensor); !fault.empty()) {
      throw InputError(
          where, fmt::format("the safetensors header is wrong at tensor \"{}\": {}", printable(tensor.name), fault),
          remedy);
    }
    if (tensor.begin != reached) {
      throw InputError(where,
                       fmt::format("the safetensors header {} before tensor \"{}\": it starts at byte {} instead of {}",
                                   tensor.begin > reached ? "leaves a hole" : "lets tensors overlap",
                                   printable(tensor.name), tensor.begin, reached),
                       remedy);
    }
    reached = tensor.end;
  }
  if (reached != data_bytes) {
    throw InputError(where, fmt::format("has {} bytes of data, but its header describes {}", data_bytes, reached),
                     reached > data_bytes ? "The file is truncated: copy or download it again" : remedy);
  }
}

}  // namespace

SafetensorsHeader SafetensorsFile::parse_header(std::span<const std::byte> start, uint64_t file_size,
                                                const std::string& where) {
  const std::string remedy = "The file is truncated, or not a safetensors file: download or convert it again";
  if (is_lfs_pointer({reinterpret_cast<const char*>(start.data()), start.size()})) throw_lfs_pointer(where);
  if (file_size < 8 || start.size() < 8) {
    throw InputError(where, fmt::format("has {} bytes, too few for a safetensors file", file_size), remedy);
  }
  uint64_t length = 0;
  for (int i = 7; i >= 0; --i) length = length << 8 | std::to_integer<uint64_t>(start[static_cast<size_t>(i)]);
  if (length > kLongestHeader || length > file_size - 8 || length > start.size() - 8) {
    throw InputError(
        where,
        fmt::format(
            "starts with a header length of {} bytes, but the file has {} bytes, and the limit of a header is {}",
            length, file_size, kLongestHeader),
        remedy);
  }
  const std::string_view text(reinterpret_cast<const char*>(start.data()) + 8, length);
  const size_t first = text.find_first_not_of(" \t\r\n");
  if (first == text.npos || text[first] != '{') {
    throw InputError(where, "the safetensors header does not start with {", remedy);
  }
  // The JSON library would ignore everything after a zero byte.
  if (text.find('\0') != text.npos) throw InputError(where, "the safetensors header contains a zero byte", remedy);

  SafetensorsHeader header;
  header.data_begin = 8 + length;
  HeaderReader reader(header, where);
  nlohmann::json::sax_parse(text, &reader);
  check_tiling(header, file_size - header.data_begin, where);
  return header;
}

}  // namespace tessera
