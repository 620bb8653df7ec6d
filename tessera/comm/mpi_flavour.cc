#include "tessera/comm/mpi_flavour.h"

#include <fmt/format.h>

#include <regex>

#include "tessera/comm/mpi/mpi_library.h"

namespace tessera {

using Family = MpiFlavour::Family;

MpiFlavour parse_mpi_flavour(std::string_view version) {
  struct Kind {
    Family family;
    const char* name;
    std::regex pattern;
  };
  static const Kind kKinds[] = {
      {Family::open_mpi, "Open MPI", std::regex(R"(Open MPI\)? *v?((\d{1,4})[.\w]*))")},
      {Family::mpich, "Intel MPI", std::regex(R"(Intel\(R\) MPI Library[^\d]*((\d{1,4})[.\w]*))")},
      {Family::mpich, "MVAPICH", std::regex(R"(MVAPICH\d?[^\d]*((\d{1,4})[.\w]*))")},
      {Family::mpich, "MPICH", std::regex(R"((?:MPICH|HYDRA)[^\d]*((\d{1,4})[.\w]*))")},
  };
  const std::string text(version.substr(0, 500));
  for (const Kind& kind : kKinds) {
    std::smatch match;
    if (!std::regex_search(text, match, kind.pattern)) continue;
    return {kind.family, std::stoi(match[2]), fmt::format("{} {}", kind.name, match[1].str())};
  }
  return {};
}

const MpiFlavour& mpi_flavour() {
  static const MpiFlavour flavour = [] {
    const MpiCalls* const mpi = mpi_calls();
    char text[kMpiTextBytes] = {};
    if (mpi) mpi->version(text);
    return parse_mpi_flavour(text);
  }();
  return flavour;
}

}  // namespace tessera
