// Reads files of prompts for generation.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/examples.h"

namespace tessera {

struct PromptRow {
  Example example;      // has a place, and a text, a question without answers, or a conversation
  std::string id_json;  // the row's "id" as JSON; empty if it is missing or null
};

// Reads JSON lines. Each line is a row of a data set (row_formats.h), without what training learns from it
// (RowOptions::as_prompts): {"prompt"}, {"question"} and perhaps "context", or a conversation in any format. A question
// with its context becomes the same prompt as in training (prompt_text()). Messages of the assistant at the end of a
// conversation stay in it, but are not part of the prompt (ChatTemplate::prompt_segments_of()). Blank lines are
// skipped. Throws InputError (with path and line) if a line has another structure, or a conversation has no message to
// answer. Also throws InputError if the file has no row or cannot be read.
std::vector<PromptRow> load_prompts(const std::filesystem::path& path, const RowOptions& options = {});
// Like load_prompts(), for the content of a file. `where` replaces the path of the file in errors.
std::vector<PromptRow> prompts_from_text(std::string_view content, const std::string& where, RowOptions options = {});

}  // namespace tessera
