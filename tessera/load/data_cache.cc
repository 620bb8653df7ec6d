#include "tessera/load/data_cache.h"

#include <fmt/format.h>
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <nlohmann/json.hpp>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/data/data_file.h"
#include "tessera/load/model_files.h"
#include "tessera/load/model_place.h"
#include "tessera/settings/setting.h"
#include "tessera/store/atomic_folder.h"
#include "tessera/store/checksum.h"
#include "tessera/store/file.h"
#include "tessera/store/model_folder.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr int64_t kFormat = 1;  // increase it if the files change, or if the same rows become other samples
constexpr const char* kIndexFile = "cache.json";
constexpr const char* kTokenFile = "tokens.bin";
constexpr const char* kSampleFile = "samples.bin";
constexpr const char* kRowFile = "rows.bin";
constexpr const char* kFaultFile = "faults.json";

// A checksum of parts of a file: its beginning, its end, and 62 places between them. With the size and the times, it
// finds every change that a program makes, without reading the complete file.
std::string checksum_of_parts(const File& file) {
  constexpr uint64_t kParts = 64, kBytes = 64 << 10;
  const uint64_t size = file.size(), last = size - std::min(size, kBytes);
  std::string part;
  Checksum checksum;
  for (uint64_t i = 0; i < kParts; ++i) {
    const uint64_t begin = last / (kParts - 1) * i + (i + 1 == kParts ? last % (kParts - 1) : 0);
    part.resize(std::min(size - begin, kBytes));
    file.read_at(part.data(), part.size(), begin);
    checksum.update(part.data(), part.size());
  }
  return checksum_text(checksum.value());
}

Record identity_of(const std::string& path) {
  if (!check_data_file(path)) {
    throw InputError(path, "is a pipe, and its data cannot be cached",
                     "Write the data to a file, or give " + option("data_cache") + " off");
  }
  const File file = File::open_to_read(path);
  struct stat status {};
  if (fstat(file.descriptor(), &status) != 0) throw_read_error(path, errno);
  const auto time = [](const timespec& t) { return fmt::format("{}.{:09}", t.tv_sec, t.tv_nsec); };
  std::error_code ignored;  // without the canonical path, the given one is used
  const fs::path full = fs::canonical(path, ignored);
  return {{"path", ignored ? path : full.string()},
          {"size", status.st_size},
          {"modified", time(status.st_mtim)},
          {"changed", time(status.st_ctim)},  // no program can set this time to an earlier one
          {"parts", checksum_of_parts(file)}};
}

// The checksums of the small files that decide how a text becomes tokens. A missing file has none.
Record text_files(const Settings& settings) {
  Record record = Record::object();
  const auto add = [&](const std::string& name, const fs::path& path) {
    const auto file = File::open_if_there(path);
    if (!file) return;
    const std::string text = file->text();
    record[name] = checksum_text(checksum_of(text.data(), text.size()));
  };
  const fs::path tokenizer = tokenizer_file_of(settings);
  add("tokenizer", tokenizer);
  for (const char* name : {"tokenizer_config.json", "special_tokens_map.json", "chat_template.json",
                           "chat_template.jinja", "config.json"}) {
    add(name, tokenizer.parent_path() / name);
  }
  add("tool_use.jinja", tokenizer.parent_path() / kChatTemplates / "tool_use.jinja");
  if (!settings.chat_template.empty()) add("--chat-template", settings.chat_template);
  return record;
}

template <typename T>
std::string_view bytes_of(const std::vector<T>& values) {
  return {reinterpret_cast<const char*>(values.data()), values.size() * sizeof(T)};
}

std::string checksum_of_text(std::string_view text) {
  return checksum_text(checksum_of(text.data(), text.size()));
}

uint64_t checksum_of_sample(std::span<const int32_t> ids, std::span<const int32_t> labels) {
  Checksum checksum;
  checksum.update(ids.data(), ids.size_bytes());
  checksum.update(labels.data(), labels.size_bytes());
  return checksum.value();
}

class FileTokens : public TokenStore {
 public:
  FileTokens(File file, std::shared_ptr<const SampleIndex> index) : file_(std::move(file)), index_(std::move(index)) {}

  void read(size_t sample, int64_t begin, std::span<int32_t> ids, std::span<int32_t> labels) const override {
    constexpr size_t kBytes = 2 * sizeof(int32_t);  // of a token
    buffer_.resize(2 * ids.size());
    file_.read_at(buffer_.data(), buffer_.size() * sizeof(int32_t), static_cast<uint64_t>(begin) * kBytes);
    std::copy_n(buffer_.begin(), ids.size(), ids.begin());
    std::copy_n(buffer_.begin() + std::ssize(ids), labels.size(), labels.begin());
    if (checksum_of_sample(ids, labels) == index_->checksums[sample]) return;
    throw InputError(file_.path().string(), fmt::format("sample {} is damaged: its checksum is wrong", sample),
                     "Check the disk, remove the folder " + file_.path().parent_path().string() +
                         ", and start again: the data are then tokenized again");
  }

 private:
  File file_;
  std::shared_ptr<const SampleIndex> index_;
  mutable std::vector<int32_t> buffer_;
};

// Writes tokens.bin in large pieces.
class TokenWriter {
 public:
  explicit TokenWriter(const fs::path& path) : file_(File::create_new(path, 0)) {}
  void add(const Sample& sample) {
    buffer_.append(bytes_of(sample.ids)).append(bytes_of(sample.labels));
    if (buffer_.size() >= kPieceBytes) flush();
  }
  void flush() {
    file_.write_at(buffer_.data(), buffer_.size(), written_);
    written_ += buffer_.size();
    buffer_.clear();
  }

 private:
  static constexpr size_t kPieceBytes = 8 << 20;
  File file_;
  std::string buffer_;
  uint64_t written_ = 0;
};

Record faults_record(const std::vector<BadRow>& faults) {
  Record list = Record::array();
  for (const BadRow& fault : faults) list.push_back({fault.place, fault.what, fault.remedy, fault.num_rows});
  return list;
}

std::vector<BadRow> faults_of(const Record& list) {
  std::vector<BadRow> faults;
  for (const Record& fault : list) {
    faults.push_back({fault.at(0).get<std::string>(), fault.at(1).get<std::string>(), fault.at(2).get<std::string>(),
                      fault.at(3).get<int64_t>()});
  }
  return faults;
}

std::string why_no_cache(const fs::path& folder) {
  for (const std::string& name : names_in_folder(folder)) {
    const auto is_name = [&](const char* own) { return name == own; };
    if (std::ranges::none_of(
            std::initializer_list<const char*>{kIndexFile, kTokenFile, kSampleFile, kRowFile, kFaultFile}, is_name)) {
      return fmt::format("contains \"{}\", which is no file of a cache of data", name);
    }
  }
  return "";
}

void check_checksum(const fs::path& file, const std::string& checksum, const Record& expected) {
  if (expected != checksum) throw InputError(file.string(), "has a wrong checksum");
}

// The text of a file of the cache. Throws InputError if it is missing, or if its checksum is not the recorded one.
std::string checked_text(const fs::path& folder, const char* name, const Record& index) {
  std::string text = File::open_to_read(folder / name).text();
  check_checksum(folder / name, checksum_of_text(text), index.at("checksums").at(name));
  return text;
}

// Reads a file of the cache that consists of arrays. They are read in place, because they may be large.
class ArrayReader {
 public:
  ArrayReader(const fs::path& folder, const char* name) : file_(File::open_to_read(folder / name)) {}
  template <typename T>
  void read(std::vector<T>& values, size_t count) {
    const size_t bytes = count * sizeof(T);
    if (bytes > file_.size() - at_) throw InputError(file_.path().string(), "is too short");
    values.resize(count);
    file_.read_at(values.data(), bytes, at_);
    checksum_.update(values.data(), bytes);
    at_ += bytes;
  }
  void check(const Record& checksum) const {
    check_checksum(file_.path(), at_ == file_.size() ? checksum_text(checksum_.value()) : "", checksum);
  }

 private:
  File file_;
  uint64_t at_ = 0;
  Checksum checksum_;
};

}  // namespace

Record cache_key(const std::vector<std::string>& files, const Settings& settings, const ModelConfig& config) {
  Record key{{"format", kFormat}, {"version", TESSERA_VERSION}};
  key["files"] = Record::array();
  for (const std::string& file : files) key["files"].push_back(identity_of(file));
  key["texts"] = text_files(settings);
  key["vocab_size"] = config.vocab_size;
  key["end_ids"] = config.more_end_ids;
  key["eos_token_id"] = config.eos_token_id;
  for (const Setting* setting : settings_of(kText | kRows | kChat)) {
    // The contents of the template are in key["texts"]. The others choose among encoded rows.
    constexpr std::array kOthers{"chat_template", "subset", "bad_rows", "max_bad_rows"};
    if (std::ranges::find(kOthers, setting->name) != kOthers.end()) continue;
    std::visit([&](const auto& value) { key["settings"][setting->name] = value; }, setting->get(settings));
  }
  return key;
}

DataCache::DataCache(const fs::path& root, Record key)
    : key_(std::move(key)), folder_(root / checksum_of_text(to_json(key_)) / "rows") {}

std::optional<CachedRows> DataCache::open(std::string& damage) const {
  const auto file = File::open_if_there(folder_ / kIndexFile);
  if (!file) return std::nullopt;
  try {
    Record index = record_from_json(file->text(), (folder_ / kIndexFile).string());
    const Record checksum = index.at("checksum");
    index.erase("checksum");
    check_checksum(folder_ / kIndexFile, checksum_of_text(to_json(index)), checksum);
    if (index.at("key") != key_) return std::nullopt;  // two keys with the same checksum
    CachedRows cached;
    EncodedRows& encoded = cached.encoded;
    cached.sizes = index.at("sizes").get<std::vector<int64_t>>();
    encoded.has_conversations = index.at("has_conversations").get<bool>();
    encoded.has_texts = index.at("has_texts").get<bool>();
    const auto num_samples = index.at("num_samples").get<size_t>();
    SampleIndex& samples = *encoded.index;
    ArrayReader sample_arrays(folder_, kSampleFile);
    sample_arrays.read(samples.starts, num_samples + 1);
    sample_arrays.read(samples.num_targets, num_samples);
    sample_arrays.read(samples.checksums, num_samples);
    sample_arrays.check(index.at("checksums").at(kSampleFile));
    ArrayReader row_arrays(folder_, kRowFile);
    row_arrays.read(encoded.rows, index.at("num_rows").get<size_t>());
    row_arrays.check(index.at("checksums").at(kRowFile));
    const Record faults = record_from_json(checked_text(folder_, kFaultFile, index), (folder_ / kFaultFile).string());
    encoded.faults = faults_of(faults.at("faults"));
    cached.malformed = faults_of(faults.at("malformed"));
    File tokens = File::open_to_read(folder_ / kTokenFile);
    const uint64_t expected = static_cast<uint64_t>(samples.starts.back()) * 2 * sizeof(int32_t);
    if (tokens.size() != expected) {
      throw InputError(tokens.path().string(), fmt::format("has {} bytes, expected {}", tokens.size(), expected));
    }
    encoded.tokens = std::make_shared<FileTokens>(std::move(tokens), encoded.index);
    return cached;
  } catch (const InputError& error) {
    damage = error.what();
  } catch (const nlohmann::json::exception& error) {
    damage = (folder_ / kIndexFile).string() + ": " + error.what();
  }
  return std::nullopt;
}

void DataCache::make(const Fill& fill) const {
  create_folders(folder_.parent_path());
  remove_stale_temporaries(folder_.parent_path());
  AtomicFolder folder(folder_, why_no_cache);
  CachedRows cached;
  EncodedRows& encoded = cached.encoded;
  TokenWriter tokens(folder.path(kTokenFile));
  fill(cached, [&](const Sample& sample) {
    encoded.index->checksums.push_back(checksum_of_sample(sample.ids, sample.labels));
    tokens.add(sample);
  });
  tokens.flush();
  Record index{{"key", key_},
               {"sizes", cached.sizes},
               {"has_conversations", encoded.has_conversations},
               {"has_texts", encoded.has_texts},
               {"num_samples", encoded.index->size()},
               {"num_rows", encoded.rows.size()}};
  const auto write = [&](const char* name, std::initializer_list<std::string_view> parts) {
    File file = File::create_new(folder.path(name), 0);
    Checksum checksum;
    uint64_t at = 0;
    for (const std::string_view part : parts) {
      file.write_at(part.data(), part.size(), at);
      checksum.update(part.data(), part.size());
      at += part.size();
    }
    index["checksums"][name] = checksum_text(checksum.value());
  };
  const SampleIndex& samples = *encoded.index;
  write(kSampleFile, {bytes_of(samples.starts), bytes_of(samples.num_targets), bytes_of(samples.checksums)});
  write(kRowFile, {bytes_of(encoded.rows)});
  write(kFaultFile,
        {to_json({{"faults", faults_record(encoded.faults)}, {"malformed", faults_record(cached.malformed)}})});
  index["checksum"] = checksum_of_text(to_json(index));
  folder.write_text(kIndexFile, to_json(index));
  folder.commit();
}

}  // namespace tessera
