#include "tessera/store/model_folder.h"

#include <fmt/format.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <set>
#include <system_error>

#include "tessera/base/counted.h"
#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/math.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/store/file.h"
#include "tessera/store/foreign_model.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kLongestIndex = 100'000'000;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kMixed = "The folder is a mix of two models, or incomplete: download it again";

// Words that wrappers of PyTorch add to the names of parameters: torch.compile, FSDP, activation checkpointing, DDP and
// DeepSpeed. The first three occur anywhere in a name, the last two only at its beginning.
constexpr std::string_view kInnerWrappers[] = {"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module"};
constexpr std::string_view kOuterWrappers[] = {"module", "_forward_module"};

// The name without prefixes and without the words of wrappers. Adds these words to `wrappers` if it is not null.
std::string key_of(std::string_view name, std::set<std::string>* wrappers = nullptr) {
  std::string key;
  bool outside = true;  // only prefixes and wrappers came before
  while (!name.empty()) {
    const size_t dot = name.find('.');
    const std::string_view word = name.substr(0, dot);
    name.remove_prefix(dot == name.npos ? name.size() : dot + 1);
    const bool is_last = dot == name.npos || name.empty();
    const auto is_word = [&](std::string_view other) { return word == other; };
    const bool wraps =
        std::ranges::any_of(kInnerWrappers, is_word) || (outside && std::ranges::any_of(kOuterWrappers, is_word));
    if (!is_last && wraps) {
      if (wrappers) wrappers->emplace(word);
      continue;
    }
    if (!is_last && outside && (word == "transformer" || word == "model")) continue;
    outside = false;
    key += word;
    if (dot != std::string_view::npos) key += '.';
  }
  return key;
}

// Whether a tensor follows from config.json, so that a model does not need it: rotary frequencies and their cosines,
// ALiBi slopes, positions, and causal masks. Some versions of transformers saved them with the weights.
bool is_buffer(std::string_view key, const TensorInfo& info) {
  const size_t dot = key.rfind('.');
  const std::string_view last = key.substr(dot == key.npos ? 0 : dot + 1);
  const std::string_view parent = dot == key.npos ? std::string_view() : key.substr(0, dot);
  constexpr std::string_view kNames[] = {"cos_cached",   "sin_cached", "masked_bias",
                                         "position_ids", "freqs_cis",  "alibi"};
  if (last.ends_with("inv_freq") || std::ranges::find(kNames, last) != std::end(kNames)) return true;
  // A causal mask is square, perhaps with leading dimensions of 1. A bias of a linear layer has one dimension.
  const auto& dims = info.dims;
  const bool is_square = dims.size() >= 2 && dims[dims.size() - 1] == dims[dims.size() - 2] &&
                         std::all_of(dims.begin(), dims.end() - 2, [](int64_t dim) { return dim == 1; });
  const bool in_attention = parent.ends_with("attn") || parent.ends_with("attention");
  return is_square && (last == "causal_mask" || (in_attention && (last == "bias" || last == "mask")));
}

[[noreturn]] void throw_no_tensors(const fs::path& folder) {
  refuse_foreign_folder(folder);
  throw InputError(folder, "has neither model.safetensors nor model.safetensors.index.json",
                   "Give a folder as save_pretrained of Hugging Face transformers writes it");
}

std::string dims_text(const TensorInfo& info) {
  std::string text = "[";
  for (size_t i = 0; i < info.dims.size(); ++i) text += (i ? ", " : "") + std::to_string(info.dims[i]);
  return text + "]";
}

}  // namespace

std::string tensor_problem(std::string_view what, const std::vector<std::string>& items) {
  constexpr size_t kShown = 5;
  if (items.empty()) return "";
  std::string text = fmt::format("{} {} {} (", counted(items.size(), "tensor"), items.size() == 1 ? "is" : "are", what);
  for (size_t i = 0; i < std::min(items.size(), kShown); ++i) text += (i ? ", " : "") + printable(items[i]);
  return text + (items.size() > kShown ? ", ...); " : "); ");
}

bool TensorSource::exists(const fs::path& folder) {
  std::error_code ignored;
  return fs::exists(folder / kSingle, ignored) || fs::exists(folder / kIndex, ignored);
}

TensorSource::TensorSource(const fs::path& folder) : folder_(folder) {
  std::error_code error;
  if (!fs::exists(folder, error)) throw InputError(folder, "no such folder", "Check the path of the model");
  if (!fs::is_directory(folder, error)) {
    throw InputError(folder, "is not a folder", "Give the folder that holds model.safetensors");
  }
  const fs::path single = folder / kSingle, index = folder / kIndex;
  if (fs::exists(single, error)) {
    files_.emplace_back(single);
    for (const auto& tensor : files_[0].tensors()) add(0, tensor.name);
  } else if (fs::exists(index, error)) {
    open_index(index);
  } else {
    throw_no_tensors(folder);
  }
}

void TensorSource::add(size_t file, const std::string& name) {
  const auto [at, is_new] = places_.try_emplace(key_of(name, &wrappers_), Place{file, name});
  if (!is_new) {
    throw InputError(files_[file].path(),
                     fmt::format("has both \"{}\" and \"{}\"", printable(at->second.name), printable(name)),
                     "Remove one of them");
  }
}

void TensorSource::open_index(const fs::path& index) {
  const auto json =
      parse_json(read_file(index, {.longest_bytes = kLongestIndex}), index, "Copy or write the file again");
  const auto map = json.is_object() ? json.find("weight_map") : json.end();
  if (map == json.end() || !map->is_object()) {
    throw InputError(index, "has no object \"weight_map\"", "It must map each tensor's name to its file");
  }
  std::map<std::string, size_t> opened;
  for (const auto& [name, file] : map->items()) {
    const std::string where = fmt::format("{}: weight_map[\"{}\"]", index.string(), printable(name));
    if (!file.is_string() || !is_base_name(file.get_ref<const std::string&>())) {
      const std::string shown = file.is_structured() ? std::string("an ") + file.type_name() : printable(file.dump());
      throw InputError(where, fmt::format("is {}, not the name of a file in the same folder", shown));
    }
    const auto& file_name = file.get_ref<const std::string&>();
    const auto [at, is_new] = opened.try_emplace(file_name, files_.size());
    if (std::error_code ignored; is_new && !fs::exists(folder_ / file_name, ignored)) {
      throw InputError(where, fmt::format("names {}, which does not exist", printable(file_name)), kMixed);
    }
    if (is_new) files_.emplace_back(folder_ / file_name);
    if (!files_[at->second].find(name)) {
      throw InputError(where, fmt::format("names {}, which has no such tensor", printable(file_name)), kMixed);
    }
    add(at->second, name);
  }
  check_files_of_index(index);
}

// Ignores tensors that the index does not name. But a tensor that the index names must not be in two files, because one
// of the two copies may be out of date.
void TensorSource::check_files_of_index(const fs::path& index) const {
  for (size_t file = 0; file < files_.size(); ++file) {
    for (const TensorInfo& tensor : files_[file].tensors()) {
      const auto at = places_.find(key_of(tensor.name));
      if (at == places_.end() || at->second.file == file) continue;
      throw InputError(
          files_[file].path(),
          fmt::format("has tensor \"{}\", but {} says that this tensor is in {}", printable(tensor.name),
                      index.filename().string(), printable(files_[at->second.file].path().filename().string())),
          kMixed);
    }
  }
}

std::vector<std::string> TensorSource::names() const {
  std::vector<std::string> names;
  for (const auto& [key, place] : places_) names.push_back(place.name);
  std::sort(names.begin(), names.end());
  return names;
}

bool TensorSource::contains(std::string_view name) const {
  return places_.contains(key_of(name));
}

const TensorSource::Place& TensorSource::place(std::string_view name) const {
  const auto at = places_.find(key_of(name));
  if (at == places_.end()) throw InputError(folder_, fmt::format("has no tensor \"{}\"", printable(name)));
  return at->second;
}

const TensorInfo& TensorSource::get(std::string_view name) const {
  const Place& at = place(name);
  return files_[at.file].get(at.name);
}

std::optional<DType> TensorSource::dtype_of(std::string_view name) const {
  const auto at = places_.find(key_of(name));
  return at == places_.end() ? std::nullopt : files_[at->second.file].find(at->second.name)->dtype;
}

void TensorSource::read_into(std::string_view name, const View& target, ThreadPool* pool) const {
  files_[place(name).file].read_into(get(name), target, pool);
}

void TensorSource::read_range_into(std::string_view name, int64_t elem_begin, int64_t elem_end, const View& target,
                                   ThreadPool* pool) const {
  files_[place(name).file].read_range_into(get(name), elem_begin, elem_end, target, pool);
}

const fs::path& TensorSource::file_of(std::string_view name) const {
  return files_[place(name).file].path();
}

bool TensorSource::are_equal(std::string_view a, std::string_view b, int part, int num_parts, ThreadPool& pool) const {
  constexpr int64_t kChunkElems = 64 << 10;
  if (get(a).dims != get(b).dims) return false;
  const int64_t num_elems = get(a).num_elems();
  const int64_t num_chunks = ceil_divide(num_elems, kChunkElems);
  const int64_t first = num_chunks * part / num_parts, last = num_chunks * (part + 1) / num_parts;
  std::atomic<bool> equal{true};
  pool.run(last - first, [&](int64_t i) {
    if (!equal) return;
    const int64_t begin = (first + i) * kChunkElems, end = std::min(num_elems, begin + kChunkElems);
    std::vector<float> values_a(static_cast<size_t>(end - begin)), values_b(values_a.size());
    read_range_into(a, begin, end, view_of(values_a.data(), {end - begin}));
    read_range_into(b, begin, end, view_of(values_b.data(), {end - begin}));
    if (std::memcmp(values_a.data(), values_b.data(), values_a.size() * sizeof(float)) != 0) equal = false;
  });
  return equal;
}

uint64_t TensorSource::sampled_checksum() const {
  Checksum checksum;
  std::vector<std::byte> values;
  for (const auto& [name, place] : places_) {
    const TensorInfo& info = *files_[place.file].find(place.name);
    const std::string text = fmt::format("{} {} {}\n", name, info.dtype_name, dims_text(info));
    checksum.update(text.data(), text.size());
    if (!info.dtype) continue;
    const int64_t count = std::min(kSampledElems, info.num_elems()), begin = (info.num_elems() - count) / 2;
    values.resize(static_cast<size_t>(count) * size_of(*info.dtype));
    files_[place.file].read_range_into(info, begin, begin + count, {values.data(), *info.dtype, {count}});
    checksum.update(values.data(), values.size());
  }
  return checksum.value();
}

std::vector<std::string> TensorSource::check_tensors(const std::vector<std::pair<std::string, Shape>>& expected,
                                                     const std::vector<std::string>& tolerated) const {
  std::vector<std::string> missing, extra, misshapen, unreadable;
  std::vector<std::string> buffers;
  std::set<std::string, std::less<>> known;
  for (const auto& name : tolerated) known.insert(key_of(name));
  for (const auto& [name, shape] : expected) {
    known.insert(key_of(name));
    if (!contains(name)) {
      missing.push_back(name);
      continue;
    }
    const Place& at = place(name);
    const TensorInfo& info = *files_[at.file].find(at.name);
    if (info.dims.size() > 4 || info.shape() != shape) {
      misshapen.push_back(fmt::format("{}: {} instead of {}", name, dims_text(info), shape.to_string()));
    } else if (!info.dtype) {
      unreadable.push_back(fmt::format("{}: {}", name, info.dtype_name));
    }
  }
  for (const auto& [key, place] : places_) {
    if (known.contains(key)) continue;
    (is_buffer(key, *files_[place.file].find(place.name)) ? buffers : extra).push_back(place.name);
  }
  std::string what = tensor_problem("missing", missing) + tensor_problem("not of this model", extra) +
                     tensor_problem("of another shape", misshapen) +
                     tensor_problem("of a type that Tessera does not read", unreadable);
  if (what.empty()) return buffers;
  what.resize(what.size() - 2);
  const bool has_adapter =
      std::ranges::any_of(extra, [](const auto& name) { return name.find(".lora_") != name.npos; });
  throw InputError(
      folder_, what,
      has_adapter
          ? "Files of an adapter belong to a folder of their own, with adapter_config.json. Give it with " +
                option("init_adapter")
          : "The model's config.json does not match its tensors: copy or download all files of the model again");
}

}  // namespace tessera
