// Makes one HTML page about runs, for screens and paper. The page is one file without scripts: it needs no network and
// no other file. On a screen, its style is light or dark, like the reader's system.
#pragma once

#include <string>
#include <vector>

#include "tessera/report/comparison.h"

namespace tessera {

// `sheets`: the workshop's tables, which the page shows after the comparison; may be empty. `version`: Tessera's
// version, for the footer.
std::string html_page(const RunSet& set, const Comparison& comparison, const std::vector<Sheet>& sheets,
                      const std::string& version);

// The style sheet of the page.
std::string page_style();

}  // namespace tessera
