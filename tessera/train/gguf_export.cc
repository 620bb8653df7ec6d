#include "tessera/train/gguf_export.h"

#include <fmt/format.h>

#include <map>

#include "tessera/base/error.h"
#include "tessera/base/option_names.h"
#include "tessera/load/gguf_tokenizer.h"
#include "tessera/load/model_place.h"
#include "tessera/load/saved_model.h"

namespace tessera {

namespace {

namespace fs = std::filesystem;

// The name of the model or the run in a path: "mine" for runs/mine, runs/mine/model and runs/mine/checkpoint-60.
std::string name_in(const std::string& path) {
  fs::path folder = fs::absolute(path).lexically_normal();
  const auto is_part_of_run = [](const fs::path& name) {
    return name.empty() || name == "model" || name == "config.json" || name.string().starts_with("checkpoint-");
  };
  while (is_part_of_run(folder.filename()) && folder.has_relative_path()) folder = folder.parent_path();
  return folder.filename().empty() ? "model" : folder.filename().string();
}

// The adapter or the checkpoint has what is new in the exported model, so it gives the name.
std::string name_of_export(const Settings& settings) {
  return name_in(!settings.init_adapter.empty() ? settings.init_adapter.front()
                 : !settings.checkpoint.empty() ? settings.checkpoint
                                                : settings.model);
}

}  // namespace

fs::path gguf_path_of(const Settings& settings, GgufType type) {
  if (settings.output_dir.ends_with(".gguf")) return settings.output_dir;
  return fs::path(settings.output_dir) / fmt::format("{}-{}.gguf", name_of_export(settings), name_of(type));
}

GgufType gguf_type_of(const Settings& settings) {
  switch (settings.gguf) {
    case Settings::Gguf::f32:
      return GgufType::f32;
    case Settings::Gguf::f16:
      return GgufType::f16;
    case Settings::Gguf::bf16:
      return GgufType::bf16;
    case Settings::Gguf::q8_0:
      return GgufType::q8_0;
    case Settings::Gguf::none:
    case Settings::Gguf::automatic:
      break;
  }
  TESSERA_ASSERT(false);
  return GgufType::f16;
}

GgufType gguf_type_of(const Settings& settings, const Model& model, const LoadedTypes& loaded) {
  if (settings.gguf != Settings::Gguf::automatic) return gguf_type_of(settings);
  int64_t in_bf16 = 0, all = 0;
  model.for_each_tensor([&](const ParameterSpec& spec) {
    const auto known = loaded.find(spec.name);
    all += spec.shape.num_elems();
    if (known != loaded.end() && known->second == DType::bf16) in_bf16 += spec.shape.num_elems();
  });
  return 2 * in_bf16 > all ? GgufType::bf16 : GgufType::f16;
}

void check_gguf_target(const Settings& settings, const fs::path& path) {
  std::error_code ignored;  // an unreadable path is reported when the file is written
  const fs::path parent = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (fs::exists(parent, ignored) && !fs::is_directory(parent, ignored)) {
    throw UsageError(option_place("output_dir"), fmt::format("\"{}\" is not a folder", printable(parent.string())),
                     "Give a folder, or a file whose name ends in .gguf");
  }
  if (!fs::exists(path, ignored)) return;
  if (!fs::is_regular_file(path, ignored)) {
    throw UsageError(path, "exists and is not a file", "Give another name in " + option("output_dir"));
  }
  if (!settings.overwrite) {
    throw UsageError(
        path, "exists, so it is not replaced",
        fmt::format("Add {} to replace it, or give another {}", option("overwrite"), option("output_dir")));
  }
}

fs::path write_gguf(Session& session, const Settings& settings, const Model& model, const LoadedTypes& loaded,
                    const std::function<void(const GgufModel::Write&)>& write_part) {
  const GgufType type = gguf_type_of(settings, model, loaded);
  const fs::path path = gguf_path_of(settings, type);
  check_gguf_target(settings, path);
  gguf_form_of(model.config());  // before the tokenizer: its errors are more important
  const std::vector<ModelFile> files =
      saved_model_options(settings, model.config(), session.tokenizer(), loaded).read_files();
  GgufTokenizer tokenizer =
      gguf_tokenizer(session.tokenizer(), model.config(), files, tokenizer_file_of(settings).string());
  const GgufModel target(model, type, name_of_export(settings), std::move(tokenizer.keys));
  target.write(path, session.pool(), write_part);
  for (const std::string& note : tokenizer.notes) session.console().note("warning: " + note);
  if (const std::string note = target.note(); !note.empty()) session.console().note("warning: " + note);
  if (const std::vector<std::string>& names = target.without_blocks(); !names.empty()) {
    session.console().note(fmt::format(
        "{} of the matrices {} F16, because {} needs rows of a multiple of {} values: {}{}", names.size(),
        names.size() == 1 ? "is" : "are", name_of(type), kQ8Values, names[0], names.size() > 1 ? ", ..." : ""));
  }
  return path;
}

}  // namespace tessera
