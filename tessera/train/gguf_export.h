// Exports a model as a GGUF file.
#pragma once

#include <filesystem>
#include <functional>

#include "tessera/session/session.h"
#include "tessera/store/gguf_model.h"
#include "tessera/store/model_writer.h"

namespace tessera {

// The file that `export --gguf` writes: --output-dir if it ends in ".gguf", otherwise a file in this folder with the
// name of the model or run and the type: exported/mine-Q8_0.gguf.
std::filesystem::path gguf_path_of(const Settings& settings, GgufType type);

// The type of --gguf, which must not be `auto`.
GgufType gguf_type_of(const Settings& settings);
// The type of --gguf. With `auto`, bf16 if most elements of the model were loaded in bf16, otherwise f16.
GgufType gguf_type_of(const Settings& settings, const Model& model, const LoadedTypes& loaded);

// Throws UsageError if the export would replace an existing file or folder without --overwrite.
void check_gguf_target(const Settings& settings, const std::filesystem::path& path);

// Writes the file. `write_part`: see GgufModel::write(). Prints what llama.cpp does differently. Returns the path.
std::filesystem::path write_gguf(Session& session, const Settings& settings, const Model& model,
                                 const LoadedTypes& loaded,
                                 const std::function<void(const GgufModel::Write&)>& write_part);

}  // namespace tessera
