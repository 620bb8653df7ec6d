#include "tessera/store/manifest.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/store/file.h"
#include "tessera/store/json.h"

namespace tessera {

namespace {

constexpr int kSchemaVersion = 1;
constexpr uint64_t kLongestManifest = 100'000'000;
// The text starts with these bytes and 16 digits: the checksum of the text in which the digits are zeros.
constexpr std::string_view kChecksumKey = "{\n  \"xxh3_64\": \"";
constexpr std::string_view kNoChecksum = "0000000000000000";

void seal(std::string& text) {
  text.replace(kChecksumKey.size(), kNoChecksum.size(), kNoChecksum);
  text.replace(kChecksumKey.size(), kNoChecksum.size(), checksum_text(checksum_of(text.data(), text.size())));
}

}  // namespace

std::string manifest_text(const Manifest& manifest) {
  auto files = nlohmann::ordered_json::array();
  for (const auto& file : manifest.files) {
    auto segments = nlohmann::ordered_json::array();
    for (const auto& segment : file.segments) {
      segments.push_back({{"bytes", segment.end - segment.begin}, {"xxh3_64", checksum_text(segment.checksum)}});
    }
    files.push_back({{"name", file.name}, {"bytes", file.bytes()}, {"segments", std::move(segments)}});
  }
  const nlohmann::ordered_json json{{"xxh3_64", kNoChecksum},
                                    {"schema_version", kSchemaVersion},
                                    {"step", manifest.step},
                                    {"world_size", manifest.world_size},
                                    {"files", std::move(files)}};
  std::string text = json.dump(2) + "\n";
  TESSERA_ASSERT(text.starts_with(kChecksumKey));
  seal(text);
  return text;
}

Manifest read_manifest(const std::filesystem::path& path) {
  const std::string remedy = "The checkpoint is damaged or incomplete: use an earlier one";
  const std::string text = read_text_file(path, kLongestManifest);
  std::string sealed = text;
  if (text.starts_with(kChecksumKey) && text.size() > kChecksumKey.size() + kNoChecksum.size()) seal(sealed);
  const bool intact = text.starts_with(kChecksumKey) && text == sealed;
  if (!intact) throw InputError(path, "does not have the content that was written", remedy);

  const auto json = parse_json(text, path);
  try {
    if (const int version = json.at("schema_version").get<int>(); version != kSchemaVersion) {
      throw InputError(path, fmt::format("has schema_version {}; this Tessera reads {}", version, kSchemaVersion),
                       "Resume with the version that wrote the checkpoint");
    }
    Manifest manifest{json.at("step").get<int64_t>(), json.at("world_size").get<int>(), {}};
    for (const auto& entry : json.at("files")) {
      ManifestFile file{entry.at("name").get<std::string>(), {}};
      if (!is_base_name(file.name)) throw InputError(path, "names a file outside the checkpoint", remedy);
      for (const auto& segment : entry.at("segments")) {
        const uint64_t begin = file.bytes();
        file.segments.push_back({begin, begin + segment.at("bytes").get<uint64_t>(),
                                 std::stoull(segment.at("xxh3_64").get<std::string>(), nullptr, 16)});
      }
      manifest.files.push_back(std::move(file));
    }
    return manifest;
  } catch (const nlohmann::json::exception&) {
    throw InputError(path, "lacks a key that every manifest has", remedy);
  } catch (const std::logic_error&) {  // stoull
    throw InputError(path, "holds a checksum that is no hexadecimal number", remedy);
  }
}

}  // namespace tessera
