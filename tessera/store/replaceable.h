// Which folders Tessera may replace or remove: those that hold only files that Tessera wrote. The functions are for
// check_replaceable() (atomic_folder.h).
#pragma once

#include <filesystem>
#include <string>
#include <string_view>

namespace tessera {

// The metadata in the weight files of a model that Tessera saved. Other programs save files with the same names.
inline constexpr std::string_view kWriterKey = "written_by", kWriter = "tessera";

// Why a folder is not, or not only, a model folder that Tessera saved; empty if it is one. Reads the headers of the
// weight files. Throws errors as names_in_folder() does.
std::string why_no_saved_model(const std::filesystem::path& folder);

// The same for a checkpoint. Its manifest lists its files; without a manifest that can be read, their names decide.
std::string why_no_own_checkpoint(const std::filesystem::path& folder);

}  // namespace tessera
