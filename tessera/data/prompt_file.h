// Reads files of prompts for generation.
#pragma once

#include <filesystem>
#include <string>
#include <string_view>
#include <vector>

#include "tessera/data/examples.h"

namespace tessera {

struct PromptRow {
  Example example;      // has a place, and either a text or a question with a context, but no answers
  std::string id_json;  // the row's "id" as JSON; empty if it is missing or null
};

// Reads JSON lines. Each line is an object with either the key "prompt", or the key "question" and perhaps "context". A
// question with its context becomes the same prompt as in training (prompt_text()). "id" is optional: a string or a
// whole number. Further keys are ignored, so a data set of questions (as JSON lines) is also a valid file. Blank lines
// are skipped. Throws InputError (with path and line) if a line has another structure. Also throws InputError if the
// file has no row or cannot be read.
std::vector<PromptRow> load_prompts(const std::filesystem::path& path);
// Like load_prompts(), for the content of a file. `where` replaces the path of the file in errors.
std::vector<PromptRow> prompts_from_text(std::string_view content, const std::string& where);

}  // namespace tessera
