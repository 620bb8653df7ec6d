// Files of prompts to continue.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/examples.h"

namespace tessera {

struct PromptRow {
  Example example;      // with its place; a text, or a question and a context without answers
  std::string id_json;  // the row's "id" as JSON; empty: it has none
};

// Reads JSON lines: {"prompt"}, or {"question", "context"} for the prompt format of the training data; each with an
// optional "id", a string or a whole number. Other keys are ignored, so rows of a data set of questions are prompts
// too. Blank lines are skipped. InputError, with path and line, for any other line, and if the file has no row or
// cannot be read.
std::vector<PromptRow> load_prompts(const std::filesystem::path& path);
// The same from the content of a file. `where` replaces its path in errors.
std::vector<PromptRow> prompts_from_text(std::string_view content, const std::string& where);

}  // namespace tessera
