#include "tessera/store/foreign_model.h"

#include <fmt/format.h>
#include <fnmatch.h>

#include <algorithm>
#include <fstream>
#include <string>
#include <system_error>
#include <vector>

#include "tessera/base/error.h"
#include "tessera/base/json.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/store/file.h"
#include "tessera/store/hub_cache.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

constexpr const char* kFolderNeeds = "Give a folder with config.json, model.safetensors and tokenizer.json";
constexpr const char* kOriginal =
    "Download the same model with the files of Hugging Face transformers: config.json and model*.safetensors";

// A form of a model. The first row whose `pattern` matches a file's name counts. "{}" in `remedy` is the folder.
struct Form {
  const char *pattern, *what, *remedy;
};
constexpr const char* kFromPickle =
    "Convert the folder to safetensors: python -c \"from transformers import AutoModelForCausalLM as M; "
    "M.from_pretrained('{0}').save_pretrained('{0}', safe_serialization=True)\"";
constexpr Form kForms[] = {
    {"pytorch_model*.bin*", "is a pickle file, which can run any code when it is read", kFromPickle},
    {"consolidated*", "has the weights in the original form of the model's authors, not as transformers saves them",
     kOriginal},
    {"model_index.json", "belongs to a pipeline of diffusers, not to a language model", kFolderNeeds},
    {"model-*-of-*.safetensors", "is a part of a model whose model.safetensors.index.json is missing",
     "Copy or download all files of the model"},
    {"*.safetensors", "is not named model.safetensors, and no model.safetensors.index.json names it",
     "If it holds the complete model, rename it to model.safetensors, and put config.json and tokenizer.json next to "
     "it"},
    {"*.gguf", "is a GGUF file, the form of llama.cpp, which Tessera does not read",
     "Download the model that it was made from, with config.json and model*.safetensors"},
    {"*.onnx", "is an ONNX file, which cannot be trained",
     "Download the model that it was made from, with config.json and model*.safetensors"},
    {"*.msgpack", "is a file of Flax",
     "Convert the folder: python -c \"from transformers import AutoModelForCausalLM as M; "
     "M.from_pretrained('{0}', from_flax=True).save_pretrained('{0}')\""},
    {"*.h5", "is a file of TensorFlow",
     "Convert the folder: python -c \"from transformers import AutoModelForCausalLM as M; "
     "M.from_pretrained('{0}', from_tf=True).save_pretrained('{0}')\""},
    {"*.bin", "is a pickle file, which can run any code when it is read",
     "Load it in Python, and save the model with save_pretrained('FOLDER', safe_serialization=True)"},
    {"*.pt", "is a pickle file, which can run any code when it is read",
     "Load it in Python, and save the model with save_pretrained('FOLDER', safe_serialization=True)"},
    {"*.pth", "is a pickle file, which can run any code when it is read",
     "Load it in Python, and save the model with save_pretrained('FOLDER', safe_serialization=True)"},
    {"*.ckpt", "is a pickle file, which can run any code when it is read",
     "Load it in Python, and save the model with save_pretrained('FOLDER', safe_serialization=True)"},
    {"*.distcp", "is a part of a sharded checkpoint of PyTorch",
     "Convert it with torch.distributed.checkpoint.format_utils.dcp_to_torch_save, and save the model with "
     "save_pretrained"},
};

[[noreturn]] void refuse_adapter(const fs::path& folder) {
  std::string base;
  try {
    const ReadOptions options{.longest_bytes = 16 << 20};
    const auto json = parse_json(read_file(folder / "adapter_config.json", options), "");
    if (json.is_object()) base = json.value("base_model_name_or_path", "");
  } catch (const std::exception&) {  // only the error's wording depends on the name of the base model
  }
  const std::string path = folder.string();
  throw InputError(path,
                   fmt::format("is a LoRA adapter{}, and not a model",
                               base.empty() ? "" : fmt::format(" for the model {}", printable(base))),
                   fmt::format("Give {} as the model, and add {} {}", base.empty() ? "its base" : printable(base),
                               option("init_adapter"), path));
}

std::string first_bytes(const fs::path& file) {
  std::string start(512, '\0');
  std::ifstream in(file, std::ios::binary);
  in.read(start.data(), static_cast<std::streamsize>(start.size()));
  start.resize(static_cast<size_t>(in.gcount()));
  return start;
}

}  // namespace

void refuse_foreign_folder(const fs::path& folder) {
  std::vector<std::string> names = names_in_folder(folder);
  std::ranges::sort(names);
  const auto has = [&](const char* name) { return std::ranges::find(names, name) != names.end(); };
  if (has("adapter_config.json") || has("adapter_model.safetensors") || has("adapter_model.bin")) {
    refuse_adapter(folder);
  }
  const auto is_weight = [](const std::string& file) {
    return file.find("model") != file.npos && !file.ends_with(".json");
  };
  const auto snapshot_of = name_of_snapshot(folder);
  if (snapshot_of && (!has("config.json") || std::ranges::none_of(names, is_weight))) {
    throw InputError(folder, "is only a part of the model: the download did not fetch config.json and all weights",
                     "Download the model: " + download_command({*snapshot_of}));
  }
  if (has("model.safetensors") || has("model.safetensors.index.json")) return;
  for (const Form& form : kForms) {
    const auto found = std::ranges::find_if(
        names, [&](const std::string& name) { return fnmatch(form.pattern, name.c_str(), FNM_CASEFOLD) == 0; });
    if (found == names.end()) continue;
    throw InputError(folder / *found, form.what, fmt::format(fmt::runtime(form.remedy), folder.string()));
  }
  std::vector<std::string> inner;
  for (const std::string& name : names) {
    std::error_code ignored;  // an unreadable folder is no suggestion
    if (fs::exists(folder / name / "config.json", ignored)) inner.push_back((folder / name).string());
  }
  if (inner.empty()) return;
  std::string text = inner[0];
  for (size_t i = 1; i < std::min<size_t>(inner.size(), 5); ++i) text += ", " + inner[i];
  throw InputError(folder, "has no config.json, but its subfolders do",
                   fmt::format("Give the folder of the model itself: {}", text));
}

void refuse_foreign_file(const fs::path& file) {
  const std::string name = file.filename().string(),
                    folder = file.has_parent_path() ? file.parent_path().string() : ".";
  const std::string start = first_bytes(file);
  const size_t text = start.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (start.starts_with("GGUF")) {
    throw InputError(file, "is a GGUF file, the form of llama.cpp, which Tessera does not read",
                     "Give the folder of the model that it was made from, with config.json and model*.safetensors");
  }
  if (name.ends_with(".safetensors")) {
    throw InputError(file, "is a single weight file, not a model",
                     fmt::format("Give its folder, which also needs config.json and tokenizer.json: {}", folder));
  }
  if (name == "model.safetensors.index.json" || name == "tokenizer.json" || name == "generation_config.json") {
    throw InputError(file, "is one file of a model", "Give its folder: " + folder);
  }
  if (name == "adapter_config.json") refuse_adapter(folder);
  for (const Form& form : kForms) {
    if (fnmatch(form.pattern, name.c_str(), FNM_CASEFOLD) != 0) continue;
    throw InputError(file, form.what, fmt::format(fmt::runtime(form.remedy), folder));
  }
  // A pointer of Git LFS and a damaged JSON are reported when the file is read.
  if (text != start.npos && start[text] != '{' && start.find('\0') != start.npos) {
    throw InputError(file, "is neither a folder nor a config.json", kFolderNeeds);
  }
}

}  // namespace tessera
