// Reads the bytes of a data file, and recognizes files that are no data for Tessera.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tessera {

// Returns the content of a data file, or of a pipe. Throws InputError if the file cannot be read, or if it is a file
// that people have in place of one: a folder, the name of a data set on a hub, a URL, a Git LFS pointer, a compressed
// file, Parquet, Arrow, CSV, UTF-16 and similar. The error gives a command that gets or converts the data.
std::string read_data_file(const std::string& path);

// Throws the errors of read_data_file(), except those of reading. Returns the size of the file in bytes; nullopt for a
// pipe, whose content is not checked.
std::optional<uint64_t> check_data_file(const std::string& path);

// The content without the byte order mark of UTF-8 at its beginning.
std::string_view without_byte_order_mark(std::string_view content);

// Whether the name ends with one of these endings, in any case. An ending begins with a point.
bool has_ending(const std::string& path, std::initializer_list<const char*> endings);

}  // namespace tessera
