#include "tessera/comm/communication_variables.h"

#include <algorithm>
#include <array>
#include <string_view>

namespace tessera {

Environment communication_variables(const Environment& environment) {
  constexpr std::array<std::string_view, 3> kKnown{"NCCL_", "UCX_", "OMPI_MCA_"};
  constexpr std::array<std::string_view, 6> kLaunchers{"OMPI_MCA_orte_",         "OMPI_MCA_prte_",
                                                       "OMPI_MCA_ess",           "OMPI_MCA_initial_wdir",
                                                       "OMPI_MCA_shmem_RUNTIME", "OMPI_MCA_pmix"};
  constexpr std::array<std::string_view, 3> kSecret{"TOKEN", "KEY", "PASSWORD"};
  Environment found;
  for (const auto& [name, value] : environment) {
    const std::string_view text = name;
    const auto begins = [text](std::string_view prefix) { return text.starts_with(prefix); };
    const auto has = [text](std::string_view word) { return text.find(word) != std::string_view::npos; };
    if (!std::ranges::any_of(kKnown, begins) || std::ranges::any_of(kLaunchers, begins)) continue;
    found[name] = std::ranges::any_of(kSecret, has) ? "(set)" : value;
  }
  return found;
}

}  // namespace tessera
