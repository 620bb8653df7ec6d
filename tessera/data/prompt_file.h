// Reads files of prompts for generation.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/examples.h"

namespace tessera {

struct PromptRow {
  Example example;      // has a place, and either a text or a question with a context; no answers
  std::string id_json;  // the row's "id" as JSON; empty if the row has none
};

// Reads JSON lines. Each line is {"prompt"} or {"question", "context"}. A question with its context becomes the same
// prompt as in training (prompt_text()). "id" is optional: a string or a whole number. Other keys are ignored, so a
// data set of questions (as JSON lines) is also a valid file. Blank lines are skipped. Throws InputError for any other
// line (with path and line), and if the file has no row or cannot be read.
std::vector<PromptRow> load_prompts(const std::filesystem::path& path);
// The same for the content of a file. `where` replaces the path of the file in errors.
std::vector<PromptRow> prompts_from_text(std::string_view content, const std::string& where);

}  // namespace tessera
