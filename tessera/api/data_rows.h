// Rows of a program as examples.
#pragma once

#include <string>

#include <tessera/rows.h>

#include "tessera/data/examples.h"
#include "tessera/settings/settings.h"

namespace tessera::v0 {

// Reads all rows of a copy, so a list stays as it is. The place of row i is "<name>[i]". A row with a fault is a bad
// row.
ExampleRows read_rows(Rows rows, const std::string& name, const Settings& settings);

// A prompt, or a conversation whose last message the model answers.
Example prompt_example(const std::string& text);
Example conversation_example(const std::vector<Message>& messages);

}  // namespace tessera::v0
