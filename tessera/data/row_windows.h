// Reads large data files in windows.
#pragma once

#include <functional>
#include <string>

#include "tessera/data/examples.h"

namespace tessera {

// Calls take() with the rows of a data file, some at a time and in the order of the file. Together, they are what
// load_rows() returns for this file, and it throws the same errors. take() may get only examples or only bad rows.
//
// JSONL, and .txt files with TextRows::line, are read in windows of about `window_bytes`: the memory is enough for one
// window and its rows. Other files are read completely: a JSON array, a JSON object, JSONL whose first line is no JSON,
// a .txt file that begins with a bracket, a file that is one text, and a pipe.
void read_row_windows(const std::string& path, const RowOptions& options, const std::function<void(ExampleRows)>& take,
                      size_t window_bytes = 64 << 20);

}  // namespace tessera
