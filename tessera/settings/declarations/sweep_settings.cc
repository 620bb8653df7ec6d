// Declares the settings that only `tessera sweep` has.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

std::vector<Setting> sweep_settings() {
  return {
      boolean("dry_run", &S::dry_run, brief(kSweep, "print the commands of the runs, and start none"),
              "Check all runs and print their commands, one per line, without starting any"),
  };
}

}  // namespace tessera::declaring
