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
#include "tessera/base/read_file.h"
#include "tessera/store/file.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr uint64_t kLongestIndex = 100'000'000;
constexpr const char* kSingle = "model.safetensors";
constexpr const char* kIndex = "model.safetensors.index.json";
constexpr const char* kMixed = "The folder is a mix of two models, or incomplete: download it again";

std::string_view without_prefix(std::string_view name) {
  for (const std::string_view prefix : {"transformer.", "model."}) {
    if (name.starts_with(prefix)) return name.substr(prefix.size());
  }
  return name;
}

[[noreturn]] void throw_no_tensors(const fs::path& folder) {
  std::error_code ignored;
  for (const char* name : {"pytorch_model.bin", "pytorch_model.bin.index.json"}) {
    if (!fs::exists(folder / name, ignored)) continue;
    throw InputError(folder / name, "is a pickle file, which can run any code when it is read",
                     fmt::format("Convert the folder to safetensors: python -c \"from transformers import "
                                 "AutoModelForCausalLM as M; M.from_pretrained('{0}').save_pretrained('{0}', "
                                 "safe_serialization=True)\"",
                                 folder.string()));
  }
  throw InputError(folder, "has neither model.safetensors nor model.safetensors.index.json",
                   "Give a folder as save_pretrained of Hugging Face transformers writes it");
}

// Returns a text such as "3 tensors are missing (a, b, c); ". It shows at most the first five items.
std::string describe(std::string_view what, const std::vector<std::string>& items) {
  constexpr size_t kShown = 5;
  if (items.empty()) return "";
  std::string text = fmt::format("{} {} {} (", counted(items.size(), "tensor"), items.size() == 1 ? "is" : "are", what);
  for (size_t i = 0; i < std::min(items.size(), kShown); ++i) text += (i ? ", " : "") + printable(items[i]);
  return text + (items.size() > kShown ? ", ...); " : "); ");
}

std::string dims_text(const TensorInfo& info) {
  std::string text = "[";
  for (size_t i = 0; i < info.dims.size(); ++i) text += (i ? ", " : "") + std::to_string(info.dims[i]);
  return text + "]";
}

}  // namespace

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
  const auto [at, is_new] = places_.try_emplace(std::string(without_prefix(name)), Place{file, name});
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
      const auto at = places_.find(without_prefix(tensor.name));
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
  return places_.contains(without_prefix(name));
}

const TensorSource::Place& TensorSource::place(std::string_view name) const {
  const auto at = places_.find(without_prefix(name));
  if (at == places_.end()) throw InputError(folder_, fmt::format("has no tensor \"{}\"", printable(name)));
  return at->second;
}

const TensorInfo& TensorSource::get(std::string_view name) const {
  const Place& at = place(name);
  return files_[at.file].get(at.name);
}

std::optional<DType> TensorSource::dtype_of(std::string_view name) const {
  const auto at = places_.find(without_prefix(name));
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
  const int64_t num_chunks = (num_elems + kChunkElems - 1) / kChunkElems;
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
    const TensorInfo& info = files_[place.file].get(place.name);
    const std::string text = fmt::format("{} {} {}\n", name, info.dtype_name, dims_text(info));
    checksum.update(text.data(), text.size());
    const int64_t count = std::min(kSampledElems, info.num_elems()), begin = (info.num_elems() - count) / 2;
    values.resize(static_cast<size_t>(count) * size_of(*info.dtype));
    files_[place.file].read_range_into(info, begin, begin + count, {values.data(), *info.dtype, {count}});
    checksum.update(values.data(), values.size());
  }
  return checksum.value();
}

void TensorSource::check_tensors(const std::vector<std::pair<std::string, Shape>>& expected,
                                 const std::vector<std::string>& tolerated) const {
  std::vector<std::string> missing, extra, misshapen, unreadable;
  std::set<std::string_view> known;
  for (const auto& name : tolerated) known.insert(without_prefix(name));
  for (const auto& [name, shape] : expected) {
    known.insert(without_prefix(name));
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
    if (!known.contains(key)) extra.push_back(place.name);
  }
  std::string what = describe("missing", missing) + describe("not of this model", extra) +
                     describe("of another shape", misshapen) +
                     describe("of a type that Tessera does not read", unreadable);
  if (what.empty()) return;
  what.resize(what.size() - 2);
  throw InputError(folder_, what,
                   "The model's config.json does not match its tensors: copy or download all files of the model again");
}

}  // namespace tessera
