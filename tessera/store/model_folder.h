// The tensors of a Hugging Face model folder.
#pragma once

#include <filesystem>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "tessera/base/thread_pool.h"
#include "tessera/base/view.h"
#include "tessera/store/safetensors.h"

namespace tessera {

// A subfolder of a model folder, and the only one: the chat templates of a tokenizer that has several.
inline constexpr const char* kChatTemplates = "additional_chat_templates";

// Patterns of the files that the tokenizers of transformers read or write. tokenizer.json is not one of them: Tessera
// writes its own copy.
inline constexpr const char* kTokenizerFiles[] = {"tokenizer_config.json",
                                                  "special_tokens_map.json",
                                                  "added_tokens.json",
                                                  "vocab.json",
                                                  "vocab.txt",
                                                  "merges.txt",
                                                  "tokenizer.model",
                                                  "tokenizer.model.v*",
                                                  "sentencepiece*.model",
                                                  "spiece.model",
                                                  "*.tiktoken",
                                                  "tiktoken.model",
                                                  "tekken.json",
                                                  "chat_template.jinja",
                                                  "chat_template.json"};

// A text such as "3 tensors are missing (a, b, c); ", with at most five of the items. "" if there is no item.
std::string tensor_problem(std::string_view what, const std::vector<std::string>& items);

// All tensors in a folder's model.safetensors. If this file does not exist, the tensors that
// model.safetensors.index.json names. The functions ignore the prefixes "transformer." and "model." of tensor names,
// and the words that wrappers of PyTorch add to names ("module.", "_orig_mod." and similar), both in the files and in
// the arguments.
class TensorSource {
 public:
  // Whether a folder has safetensors weights.
  static bool exists(const std::filesystem::path& folder);
  // Opens and validates every file. Throws InputError if the folder is missing or has no safetensors weights, if the
  // index or a file is invalid, if a file that the index names is missing, if a tensor is in two files, or if two names
  // differ only in ignored words.
  explicit TensorSource(const std::filesystem::path& folder);

  const std::filesystem::path& folder() const { return folder_; }
  std::vector<std::string> names() const;  // of all tensors, as the files spell them, sorted
  bool contains(std::string_view name) const;
  // The words of wrappers in the names of the files: "module", "_orig_mod".
  const std::set<std::string>& wrappers() const { return wrappers_; }
  // Throws InputError if the folder has no such tensor.
  const std::filesystem::path& file_of(std::string_view name) const;
  // The type of a tensor. Empty if the folder has no such tensor, or if Tessera does not read its type.
  std::optional<DType> dtype_of(std::string_view name) const;
  // Throws InputError if the folder has no such tensor, if Tessera does not read its type, or if the tensor has more
  // than 4 dimensions.
  const TensorInfo& get(std::string_view name) const;

  // Like SafetensorsFile::read_into and read_range_into. Also throw InputError like get().
  void read_into(std::string_view name, const View& target, ThreadPool* pool = nullptr) const;
  void read_range_into(std::string_view name, int64_t elem_begin, int64_t elem_end, const View& target,
                       ThreadPool* pool = nullptr) const;

  // Divides the elements of two floating-point tensors into `num_parts` parts and compares part number `part` (from 0).
  // Returns whether the shapes are equal and the values of this part, converted to f32, are equal bit by bit. Throws
  // InputError like get() and read_range_into().
  bool are_equal(std::string_view a, std::string_view b, int part, int num_parts, ThreadPool& pool) const;

  // A checksum of the names, types and shapes of all tensors, and of up to kSampledElems values in the middle of each
  // tensor whose type Tessera reads. Throws InputError like get().
  static constexpr int64_t kSampledElems = 1024;
  uint64_t sampled_checksum() const;

  // Checks that the folder has the `expected` tensors, with these shapes and with types that Tessera reads, and no
  // other tensors except those in `tolerated`, and buffers that follow from config.json, such as rotary frequencies and
  // causal masks. One InputError lists all problems. Returns the names of these buffers.
  std::vector<std::string> check_tensors(const std::vector<std::pair<std::string, Shape>>& expected,
                                         const std::vector<std::string>& tolerated) const;

 private:
  struct Place {
    size_t file;       // index into files_
    std::string name;  // as that file spells it
  };
  void add(size_t file, const std::string& name);
  void open_index(const std::filesystem::path& index);
  void check_files_of_index(const std::filesystem::path& index) const;
  const Place& place(std::string_view name) const;

  std::filesystem::path folder_;
  std::vector<SafetensorsFile> files_;
  std::map<std::string, Place, std::less<>> places_;  // by name without the ignored words
  std::set<std::string> wrappers_;
};

}  // namespace tessera
