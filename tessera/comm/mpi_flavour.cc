#include "tessera/comm/mpi_flavour.h"

#include <fmt/format.h>

#include <regex>

#ifdef TESSERA_HAVE_MPI
#include "tessera/comm/mpi/mpi_world.h"
#endif

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
#ifdef TESSERA_HAVE_MPI
  static const MpiFlavour flavour = parse_mpi_flavour(mpi_library_version());
#else
  static const MpiFlavour flavour;
#endif
  return flavour;
}

std::vector<std::string> mpirun_options(const MpiFlavour& flavour, int num_ranks) {
  std::vector<std::string> options{"-n", std::to_string(num_ranks)};
  if (flavour.family == Family::mpich) {  // Hydra needs no options for root, oversubscription or binding
    options.insert(options.begin(), "-disable-auto-cleanup");
    return options;
  }
  const std::vector<std::string> more_than_cores = flavour.major >= 5
                                                       ? std::vector<std::string>{"--map-by", ":OVERSUBSCRIBE"}
                                                       : std::vector<std::string>{"--oversubscribe"};
  options.insert(options.end(), {"--allow-run-as-root", "--bind-to", "none", "--stdin", "none"});
  options.insert(options.end(), more_than_cores.begin(), more_than_cores.end());
  return options;
}

bool mpirun_ends_ranks(const MpiFlavour& flavour) {
  return flavour.family != Family::mpich;
}

void add_mpirun_variables(const MpiFlavour& flavour, Environment& environment) {
  const auto add = [&](const char* name, const char* value) { environment.emplace(name, value); };
  if (flavour.family == Family::mpich) {
    add("HYDRA_RMK", "user");
    add("HYDRA_LAUNCHER", "fork");
    add("MPIR_CVAR_SUPPRESS_ABORT_MESSAGE", "1");
    return;
  }
  if (flavour.major >= 5) {
    add("PRTE_MCA_ras", "^slurm,gridengine,pbs,lsf,flux");
    add("OMPI_MCA_btl", "self,sm");
  } else {
    add("OMPI_MCA_ras", "^slurm,gridengine,tm,lsf");
    add("OMPI_MCA_plm", "isolated");  // starts ranks without ssh, which may be missing
    add("OMPI_MCA_btl", "self,vader");
  }
  add("OMPI_MCA_pml", "ob1");
  add("OMPI_MCA_opal_signal", "");  // no stack traces: the launcher reports the failure
}

std::optional<ReportedDeath> reported_death(const std::string& mpirun_output) {
  // The pattern omits the first words of Open MPI's message, because they name the program: mpirun, or prterun from
  // version 5 on.
  static const std::regex kOpenMpi(R"(process rank (\d{1,9}) with PID \d+ on node \S+\s+exited on\s+signal (\d{1,3}))");
  static const std::regex kHydra(R"((?:PID (\d{1,9}) RUNNING AT [^]*)?EXIT STRING: [^\n]*\(signal (\d{1,3})\))");
  std::smatch match;
  if (std::regex_search(mpirun_output, match, kOpenMpi)) {
    return ReportedDeath{.rank = std::stoi(match[1]), .pid = {}, .signal = std::stoi(match[2])};
  }
  if (std::regex_search(mpirun_output, match, kHydra)) {
    const std::optional<int> pid = match[1].matched ? std::optional(std::stoi(match[1])) : std::nullopt;
    return ReportedDeath{.rank = {}, .pid = pid, .signal = std::stoi(match[2])};
  }
  return std::nullopt;
}

}  // namespace tessera
