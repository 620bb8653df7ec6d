#include "tessera/data/data_file.h"

#include <fmt/format.h>

#include <algorithm>
#include <cctype>
#include <filesystem>
#include <fstream>
#include <limits>
#include <string_view>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr size_t kHeadBytes = 4096;  // of a file, to recognize its kind

constexpr const char* kRemedy = "Give the path of a JSON or JSONL file";

// The name of the converted file: without the ending of the file that is converted, and with ".jsonl".
std::string converted(const std::string& path) {
  const fs::path stem = fs::path(path).replace_extension();
  if (has_ending(path, {".json", ".jsonl", ".ndjson", ".txt"})) {
    return stem.string() + ".new" + fs::path(path).extension().string();
  }
  return has_ending(stem.string(), {".json", ".jsonl", ".ndjson", ".txt"}) ? stem.string() : stem.string() + ".jsonl";
}

// A kind of file that Tessera does not read. In `command`, {0} is the file and {1} the file to write.
struct Foreign {
  std::string_view magic;  // its first bytes; empty: the ending decides
  const char* ending;
  const char* name;
  const char* command;
};

using namespace std::string_view_literals;
constexpr Foreign kForeign[] = {
    {"PAR1"sv, ".parquet", "a Parquet file",
     "python3 -c \"import pandas, sys; pandas.read_parquet(sys.argv[1]).to_json(sys.argv[2], orient='records', "
     "lines=True)\" {0} {1}"},
    {"ARROW1"sv, ".feather", "an Arrow file",
     "python3 -c \"import pandas, sys; pandas.read_feather(sys.argv[1]).to_json(sys.argv[2], orient='records', "
     "lines=True)\" {0} {1}"},
    {"\xFF\xFF\xFF\xFF"sv, ".arrow", "an Arrow file",
     "python3 -c \"import datasets, sys; datasets.Dataset.from_file(sys.argv[1]).to_json(sys.argv[2])\" {0} {1}"},
    {"\x1F\x8B"sv, ".gz", "a gzip file", "gzip -dc {0} > {1}"},
    {"\x28\xB5\x2F\xFD"sv, ".zst", "a Zstandard file", "zstd -dc {0} > {1}"},
    {"\xFD"
     "7zXZ\0"sv,
     ".xz", "an xz file", "xz -dc {0} > {1}"},
    {"BZh"sv, ".bz2", "a bzip2 file", "bzip2 -dc {0} > {1}"},
    {"\x04\x22\x4D\x18"sv, ".lz4", "an LZ4 file", "lz4 -dc {0} > {1}"},
    {"7z\xBC\xAF\x27\x1C"sv, ".7z", "a 7z archive", "7z x {0}"},
    {"PK\x03\x04"sv, ".zip", "a zip archive", "unzip {0}"},
    {"\xFF\xFE"sv, "", "UTF-16 text", "iconv -f UTF-16 -t UTF-8 {0} > {1}"},
    {"\xFE\xFF"sv, "", "UTF-16 text", "iconv -f UTF-16 -t UTF-8 {0} > {1}"},
    {""sv, ".csv", "a CSV file",
     "python3 -c \"import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(open(sys.argv[1], "
     "newline='', encoding='utf-8-sig'))]\" {0} > {1}"},
    {""sv, ".tsv", "a TSV file",
     "python3 -c \"import csv, json, sys; [print(json.dumps(row)) for row in csv.DictReader(open(sys.argv[1], "
     "newline='', encoding='utf-8-sig'), delimiter='\\t')]\" {0} > {1}"},
};

std::string command_for(const Foreign& kind, const std::string& path) {
  return fmt::format(fmt::runtime(kind.command), quoted_for_shell(path), quoted_for_shell(converted(path)));
}

[[noreturn]] void refuse(const std::string& path, const std::string& what, const std::string& remedy) {
  throw InputError(path, what, remedy);
}

void refuse_foreign(const std::string& path, const Foreign& kind) {
  refuse(path, fmt::format("is {}, which Tessera does not read", kind.name), "Convert it: " + command_for(kind, path));
}

// Throws InputError if the file begins like a file of another kind. `head`: its first bytes.
void check_head(const std::string& path, std::string_view head) {
  if (head.starts_with("version https://git-lfs.github.com/spec/")) {
    const std::string folder = fs::path(path).parent_path().string();
    refuse(path, "is a Git LFS pointer, not the data itself",
           fmt::format("Fetch the data: git -C {} lfs pull", quoted_for_shell(folder.empty() ? "." : folder)));
  }
  const size_t begin = std::min(head.find_first_not_of(" \t\r\n"), head.size());
  const bool may_be_json = begin < head.size() && (head[begin] == '{' || head[begin] == '[');
  const bool is_tar = head.size() > 262 && head.substr(257, 5) == "ustar";
  if (is_tar || (has_ending(path, {".tar.gz", ".tgz", ".tar.zst", ".tar.bz2", ".tar.xz"}) && !may_be_json)) {
    refuse(path, "is a tar archive, which Tessera does not read",
           fmt::format("Unpack it: tar xf {}, and give its data files", quoted_for_shell(path)));
  }
  if (head.starts_with("PK\x03\x04") && has_ending(path, {".xlsx", ".ods"})) {
    refuse(path, "is a spreadsheet, which Tessera does not read",
           fmt::format("Convert it: python3 -c \"import pandas, sys; pandas.read_excel(sys.argv[1]).to_json("
                       "sys.argv[2], orient='records', lines=True)\" {} {}",
                       quoted_for_shell(path), quoted_for_shell(converted(path))));
  }
  const std::string tag = lower(head.substr(begin, 14));
  if (!has_ending(path, {".txt"}) && (tag.starts_with("<!doctype html") || tag.starts_with("<html"))) {
    refuse(path, "is an HTML page, not the data itself", "Download the raw file");
  }
  for (const Foreign& kind : kForeign) {
    const bool is_kind = kind.magic.empty() ? has_ending(path, {kind.ending}) && !may_be_json && begin < head.size()
                                            : head.starts_with(kind.magic);
    if (is_kind) refuse_foreign(path, kind);
  }
}

// The first files below the folder with one of these endings, in alphabetical order.
std::vector<std::string> files_below(const fs::path& folder, std::initializer_list<const char*> endings) {
  constexpr int kMostEntries = 20'000, kDeepest = 5;
  std::vector<std::string> found;
  std::error_code error;
  int seen = 0;
  fs::recursive_directory_iterator entry(folder, fs::directory_options::skip_permission_denied, error);
  for (; !error && entry != fs::recursive_directory_iterator() && seen < kMostEntries; entry.increment(error), ++seen) {
    const fs::path& path = entry->path();
    const std::string name = path.filename().string();
    if (name.starts_with(".") || entry.depth() >= kDeepest) entry.disable_recursion_pending();
    std::error_code none;
    // These files describe a model or a data set.
    const bool is_config = name.find("config") != name.npos || name.find("tokenizer") != name.npos ||
                           name.find("dataset_info") != name.npos || name == "state.json" || name == "vocab.json";
    if (name.starts_with(".") || is_config || !has_ending(name, endings) || !fs::is_regular_file(path, none)) continue;
    found.push_back(path.lexically_normal().string());
  }
  std::ranges::sort(found);
  return found;
}

[[noreturn]] void refuse_folder(const std::string& path) {
  constexpr size_t kShown = 3;
  const char* what = "is a folder, not a file";
  const auto listed = [&](const std::vector<std::string>& files) {
    std::string text;
    for (size_t i = 0; i < std::min(kShown, files.size()); ++i) text += (i > 0 ? " " : "") + quoted_for_shell(files[i]);
    if (files.size() > kShown) text += fmt::format(" … ({} files)", files.size());
    return text;
  };
  const auto data = files_below(path, {".json", ".jsonl", ".ndjson", ".txt"});
  if (!data.empty()) refuse(path, what, "Give one or more of its files: " + listed(data));
  for (const Foreign& kind : kForeign) {
    if (*kind.ending == 0) continue;
    const auto files = files_below(path, {kind.ending});
    if (files.empty()) continue;
    refuse(
        path,
        fmt::format("{}. Each of these files is {}, which Tessera does not read: {}", what, kind.name, listed(files)),
        "Convert them, and give the new files: " + command_for(kind, files[0]));
  }
  refuse(path, what, kRemedy);
}

bool is_hub_name(const std::string& path) {
  const size_t slash = std::min(path.find('/'), path.size());
  if (path.empty() || path[0] == '.' || path.find('/', slash + 1) != path.npos || slash + 1 == path.size())
    return false;
  const auto allowed = [](unsigned char c) {
    return std::isalnum(c) != 0 || c == '_' || c == '-' || c == '.' || c == '/';
  };
  if (slash == 0 || !std::ranges::all_of(path, allowed)) return false;
  std::error_code none;
  return slash == path.size() || !fs::exists(path.substr(0, slash), none);
}

// If the path is several existing paths in one word, returns them. Otherwise returns an empty list.
std::vector<std::string> several_paths(const std::string& path) {
  for (const char separator : {',', ':', ' ', ';'}) {
    std::vector<std::string> paths;
    for (size_t begin = 0; begin <= path.size();) {
      const size_t end = std::min(path.find(separator, begin), path.size());
      if (end > begin) paths.push_back(path.substr(begin, end - begin));
      begin = end + 1;
    }
    std::error_code none;
    if (paths.size() > 1 && std::ranges::all_of(paths, [&](const auto& p) { return fs::exists(p, none); }))
      return paths;
  }
  return {};
}

[[noreturn]] void refuse_missing(const std::string& path) {
  const auto hub = [&](const std::string& name) {
    return fmt::format("hf download {} --repo-type dataset --local-dir {}", name, name.substr(name.rfind('/') + 1));
  };
  if (path.find("://") != path.npos) {
    const size_t name = path.find("huggingface.co/datasets/");
    const std::string rest = name == path.npos ? "" : path.substr(name + 24);
    refuse(path, "is a URL, and Tessera reads local files",
           "Download it: " + (is_hub_name(rest) ? hub(rest) : "curl -LO " + quoted_for_shell(path)));
  }
  if (const auto paths = several_paths(path); !paths.empty()) {
    std::string words, list;
    for (const auto& each : paths)
      words += " " + quoted_for_shell(each), list += (list.empty() ? "\"" : ", \"") + each + "\"";
    refuse(path, "no such file",
           fmt::format("Give several files as several words:{}. In a file of settings or an environment variable: [{}]",
                       words, list));
  }
  const bool has_data_ending = has_ending(path, {".json", ".jsonl", ".ndjson", ".txt"}) ||
                               std::ranges::any_of(kForeign, [&](const Foreign& kind) {
                                 return *kind.ending && has_ending(path, {kind.ending});
                               });
  if (!has_data_ending && is_hub_name(path)) {
    refuse(
        path, "no such file",
        fmt::format("To get a data set of this name from the Hugging Face hub: {}. Then give a JSON or JSONL file of "
                    "that folder",
                    hub(path)));
  }
  refuse(path, "no such file", kRemedy);
}

}  // namespace

bool has_ending(const std::string& path, std::initializer_list<const char*> endings) {
  const std::string name = lower(path);
  return std::ranges::any_of(endings, [&](const char* ending) { return name.ends_with(ending); });
}

std::string_view without_byte_order_mark(std::string_view content) {
  if (content.starts_with("\xEF\xBB\xBF")) content.remove_prefix(3);
  return content;
}

std::optional<uint64_t> check_data_file(const std::string& path) {
  std::error_code error;
  const fs::file_type type = fs::status(path, error).type();
  if (type == fs::file_type::not_found) refuse_missing(path);
  if (type == fs::file_type::directory) refuse_folder(path);
  if (type != fs::file_type::regular) return std::nullopt;
  std::string head(kHeadBytes, '\0');
  std::ifstream file(path, std::ios::binary);
  file.read(head.data(), kHeadBytes);
  check_head(path, std::string_view(head).substr(0, static_cast<size_t>(file.gcount())));
  const uintmax_t size = fs::file_size(path, error);
  return error ? 0 : size;  // an error is reported when the file is read
}

std::string read_data_file(const std::string& path) {
  const bool is_checked = check_data_file(path).has_value();  // a foreign file may be much larger than the memory
  std::string content =
      read_file(path, {.remedy = kRemedy, .longest_bytes = std::numeric_limits<uint64_t>::max(), .pipes = true});
  if (!is_checked) check_head(path, std::string_view(content).substr(0, kHeadBytes));
  return content;
}

}  // namespace tessera
