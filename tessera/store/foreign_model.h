// Models in forms that Tessera does not read: errors that name the form, and the command that converts it.
#pragma once

#include <filesystem>

namespace tessera {

// Throws InputError if a folder holds a model in another form, such as GGUF or a LoRA adapter, or only a part of a
// model. Does nothing if the folder holds none of the forms. Call it only if the folder lacks config.json or weights.
void refuse_foreign_folder(const std::filesystem::path& folder);

// Throws InputError if a file is not a config.json but a weight file, such as GGUF, safetensors or a pickle file. Does
// nothing for a text in JSON.
void refuse_foreign_file(const std::filesystem::path& file);

}  // namespace tessera
