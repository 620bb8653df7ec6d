#include "tessera/store/manifest.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <iterator>
#include <map>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/store/damage.h"
#include "tessera/store/file.h"

namespace tessera {

namespace {

// A manifest without a reference has the older version, so that earlier versions of Tessera read it.
constexpr int kSchemaVersion = 3, kWithoutReference = 2;
// The text of a manifest starts with kChecksumKey and 16 hexadecimal digits. The digits are the checksum of the text.
// While the checksum is computed, kNoChecksum replaces the digits.
constexpr std::string_view kChecksumKey = "{\n\"xxh3_64\": \"";
constexpr std::string_view kNoChecksum = "0000000000000000";

void seal(std::string& text) {
  text.replace(kChecksumKey.size(), kNoChecksum.size(), kNoChecksum);
  text.replace(kChecksumKey.size(), kNoChecksum.size(), checksum_text(checksum_of(text.data(), text.size())));
}

nlohmann::ordered_json json_of(const ManifestFile& file) {
  auto segments = nlohmann::ordered_json::array();
  for (const auto& segment : file.segments) {
    segments.push_back({segment.end - segment.begin, checksum_text(segment.checksum)});
  }
  return {{"name", file.name}, {"bytes", file.bytes()}, {"segments", std::move(segments)}};
}

nlohmann::ordered_json json_of(const ManifestArray& array) {
  auto pieces = nlohmann::ordered_json::array();
  for (const auto& piece : array.pieces) pieces.push_back({piece.rank, piece.begin, piece.end});
  nlohmann::ordered_json json = {{"name", array.name},
                                 {"dtype", name_of(array.dtype)},
                                 {"elements", array.total_elems},
                                 {"pieces", std::move(pieces)}};
  if (array.is_referenced) json["referenced"] = true;
  return json;
}

// Writes one object per line, so that the text is compact and people can still read it.
template <typename Item>
std::string lines_of(const std::vector<Item>& items) {
  std::string text;
  for (const Item& item : items) text += (text.empty() ? "\n" : ",\n") + json_of(item).dump();
  return text;
}

ManifestFile file_of(const nlohmann::json& json, const std::string& where) {
  ManifestFile file{json.at("name").get<std::string>(), {}};
  if (!is_inner_name(file.name)) throw DamageError(where, "names a file outside the checkpoint", kDamaged);
  for (const auto& segment : json.at("segments")) {
    const uint64_t begin = file.bytes();
    file.segments.push_back(
        {begin, begin + segment.at(0).get<uint64_t>(), std::stoull(segment.at(1).get<std::string>(), nullptr, 16)});
  }
  return file;
}

ManifestArray array_of(const nlohmann::json& json, const std::string& where) {
  ManifestArray array;
  array.name = json.at("name").get<std::string>();
  array.total_elems = json.at("elements").get<int64_t>();
  const auto type = json.at("dtype").get<std::string>();
  const auto is_known = [&](DType dtype) { return type == name_of(dtype); };
  constexpr std::array kTypes{DType::f64, DType::f32, DType::f16, DType::bf16,
                              DType::i64, DType::i32, DType::u8,  DType::nf4};
  const auto known = std::find_if(kTypes.begin(), kTypes.end(), is_known);
  if (known == kTypes.end()) {
    throw DamageError(where, fmt::format("has an array of the unknown type \"{}\"", printable(type)), kDamaged);
  }
  array.dtype = *known;
  for (const auto& piece : json.at("pieces")) {
    array.pieces.push_back({piece.at(0).get<int>(), piece.at(1).get<int64_t>(), piece.at(2).get<int64_t>()});
  }
  array.is_referenced = json.value("referenced", false);
  return array;
}

// Returns a description of the first error in the pieces of an array, or "" if the pieces cover the array.
std::string fault_of(const ManifestArray& array, int world_size) {
  int64_t reached = 0;
  if (array.is_referenced) {
    return array.pieces.empty() ? ""
                                : fmt::format("array \"{}\" is in other files, but has pieces", printable(array.name));
  }
  for (const ArrayPiece& piece : array.pieces) {
    if (piece.rank < 0 || piece.rank >= world_size) {
      return fmt::format("array \"{}\" has a piece of rank {}, but the ranks are 0 to {}", printable(array.name),
                         piece.rank, world_size - 1);
    }
    if (piece.begin != reached || piece.end <= piece.begin) {
      return fmt::format("array \"{}\": rank {} holds elements {} to {}, but element {} must come next",
                         printable(array.name), piece.rank, piece.begin, piece.end, reached);
    }
    reached = piece.end;
  }
  if (reached == array.total_elems) return "";
  return fmt::format("array \"{}\": its pieces have {} of its {} elements", printable(array.name), reached,
                     array.total_elems);
}

}  // namespace

std::string rank_file_name(int rank, int world_size) {
  return fmt::format("rank-{:05}-of-{:05}.safetensors", rank, world_size);
}

std::string manifest_text(const Manifest& manifest) {
  std::string text =
      fmt::format("{}{}\",\n\"schema_version\": {},\n\"step\": {},\n\"world_size\": {},\n", kChecksumKey, kNoChecksum,
                  manifest.reference ? kSchemaVersion : kWithoutReference, manifest.step, manifest.world_size);
  if (manifest.reference) {
    text +=
        fmt::format("\"reference\": {{\"folder\": {}, \"files\": [{}]}},\n",
                    nlohmann::json(manifest.reference->folder.string()).dump(), lines_of(manifest.reference->files));
  }
  text += fmt::format("\"files\": [{}],\n\"arrays\": [{}]\n}}\n", lines_of(manifest.files), lines_of(manifest.arrays));
  seal(text);
  return text;
}

Manifest parse_manifest(const std::string& text, const std::string& where) {
  std::string sealed = text;
  const bool begins_well = text.starts_with(kChecksumKey) && text.size() > kChecksumKey.size() + kNoChecksum.size();
  if (begins_well) seal(sealed);
  if (!begins_well || text != sealed) {
    throw DamageError(where, "has a checksum that does not match its content", kDamaged);
  }
  const auto json = parse_json(text, where, kDamaged);
  try {
    const int version = json.at("schema_version").get<int>();
    if (version != kSchemaVersion && version != kWithoutReference) {
      throw InputError(where,
                       fmt::format("has schema_version {}; this Tessera reads {} and {}", version, kWithoutReference,
                                   kSchemaVersion),
                       "Resume with the version that wrote the checkpoint");
    }
    Manifest manifest{json.at("step").get<int64_t>(), json.at("world_size").get<int>(), {}, {}};
    for (const auto& file : json.at("files")) manifest.files.push_back(file_of(file, where));
    for (const auto& array : json.at("arrays")) manifest.arrays.push_back(array_of(array, where));
    if (const auto reference = json.find("reference"); reference != json.end()) {
      manifest.reference = ReferencedFiles{reference->at("folder").get<std::string>(), {}};
      for (const auto& file : reference->at("files")) manifest.reference->files.push_back(file_of(file, where));
    }
    const bool refers = std::ranges::any_of(manifest.arrays, &ManifestArray::is_referenced);
    if (refers && !manifest.reference) throw DamageError(where, "refers to files that it does not name", kDamaged);
    return manifest;
  } catch (const nlohmann::json::exception&) {
    throw DamageError(where, "lacks a required key", kDamaged);
  } catch (const std::logic_error&) {  // thrown by stoull()
    throw DamageError(where, "has a checksum that is not a hexadecimal number", kDamaged);
  }
}

Manifest merge_manifests(std::vector<Manifest> parts) {
  Manifest merged{parts.at(0).step, parts[0].world_size, {}, {}, std::move(parts[0].reference)};
  std::map<std::string, size_t> places;  // index in merged.arrays, by name
  for (Manifest& part : parts) {
    std::move(part.files.begin(), part.files.end(), std::back_inserter(merged.files));
    for (ManifestArray& array : part.arrays) {
      const auto [at, is_new] = places.try_emplace(array.name, merged.arrays.size());
      if (is_new) {
        merged.arrays.push_back(std::move(array));
        continue;
      }
      ManifestArray& known = merged.arrays[at->second];
      if (known.total_elems != array.total_elems || known.dtype != array.dtype) {
        throw RunError("",
                       fmt::format("the ranks do not agree on array \"{}\": {} elements of {}, or {} of {}", known.name,
                                   known.total_elems, name_of(known.dtype), array.total_elems, name_of(array.dtype)));
      }
      known.pieces.insert(known.pieces.end(), array.pieces.begin(), array.pieces.end());
    }
  }
  for (ManifestArray& array : merged.arrays) {
    std::sort(array.pieces.begin(), array.pieces.end(),
              [](const ArrayPiece& a, const ArrayPiece& b) { return a.begin < b.begin; });
    if (const std::string fault = fault_of(array, merged.world_size); !fault.empty()) throw RunError("", fault);
  }
  return merged;
}

Manifest read_manifest(const std::filesystem::path& path) {
  const auto file = File::open_if_there(path);
  if (!file) throw DamageError(path, "no such file", kDamaged);
  Manifest manifest = parse_manifest(file->text(), path);
  for (const ManifestArray& array : manifest.arrays) {
    if (const std::string fault = fault_of(array, manifest.world_size); !fault.empty()) {
      throw DamageError(path, fault, kDamaged);
    }
  }
  return manifest;
}

}  // namespace tessera
