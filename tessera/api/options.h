// The options of a program as settings.
#pragma once

#include <string>
#include <vector>

#include <tessera/options.h>

#include "tessera/log/console.h"
#include "tessera/settings/resolve.h"

namespace tessera::v0 {

// Resolves the options like the settings of `verb`, which takes `groups`. The options in `required` must be given.
// Settles the precision. Prints warnings to the console. The variables TESSERA_* of the environment have no effect: a
// program decides itself where its options come from. Throws UsageError.
ResolvedSettings resolved_options(const Options& options, Groups groups, const std::string& verb,
                                  const std::vector<std::string>& required, Console& console);

// Like resolved_options(), but leaves the precision `auto` as it is, as a plan needs it.
ResolvedSettings options_of_plan(const Options& options, Console& console);

}  // namespace tessera::v0
