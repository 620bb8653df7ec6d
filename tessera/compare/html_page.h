// Makes one HTML page about runs, for screens and paper. The page uses neither the network nor scripts, and has a light
// and a dark style.
#pragma once

#include <string>
#include <vector>

#include "tessera/compare/comparison.h"

namespace tessera {

// `sheets`: tables in addition to the comparison. The page refers to no other file.
std::string html_page(const RunSet& set, const Comparison& comparison, const std::vector<Sheet>& sheets,
                      const std::string& version);

// The style sheet of the page.
extern const char* const kPageStyle;

}  // namespace tessera
