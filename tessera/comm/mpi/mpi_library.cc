#include "tessera/comm/mpi/mpi_library.h"

#include <dlfcn.h>

#include <cstdlib>
#include <filesystem>
#include <optional>

#include "tessera/comm/mpi_flavour.h"

namespace tessera {

#ifdef TESSERA_HAVE_MPI

const MpiCalls* mpi_calls() {
  return &tessera_mpi_calls;
}

bool has_mpi_calls() {
  return true;
}

std::string reason_of_no_mpi() {
  return "";
}

std::vector<std::string> describe_mpi_libraries() {
  return {mpi_flavour().text};
}

#else

namespace {

namespace fs = std::filesystem;

struct Module {
  const char* file;
  std::vector<const char*> libraries;         // the names that systems give to the MPI library
  std::vector<const char*> of_its_launchers;  // variables that they set
};
const Module kOpenMpi{"open_mpi.so", {"libmpi.so.40"}, {"OMPI_COMM_WORLD_RANK", "PMIX_RANK"}};
const Module kMpich{"mpich.so", {"libmpi.so.12", "libmpich.so.12"}, {"PMI_RANK"}};

// Empty if it is unknown.
fs::path module_folder() {
  const fs::path program = own_program();
  return program.empty() ? fs::path() : program.parent_path().parent_path() / "lib" / "tessera";
}

// The folder ../lib of the first mpirun in PATH.
std::optional<fs::path> folder_of_mpirun() {
  const Environment environment = environment_of_process();
  const auto mpirun = program_in_path(environment, "mpirun");
  if (!mpirun) return std::nullopt;
  std::error_code error;
  return fs::canonical(*mpirun, error).parent_path().parent_path() / "lib";
}

struct Opened {
  const MpiCalls* calls = nullptr;
  std::string problem;
};

// Null and why, if the library of the module cannot be opened. `scope`: RTLD_GLOBAL or RTLD_LOCAL.
void* open_library(const Module& module, int scope, std::string& problem) {
  void* library = nullptr;
  const auto try_open = [&](const std::string& name) {
    if (!library) library = dlopen(name.c_str(), RTLD_NOW | scope);
    if (!library && problem.empty()) problem = dlerror();
  };
  for (const char* name : module.libraries) try_open(name);
  const auto folder = library ? std::nullopt : folder_of_mpirun();
  for (const char* name : module.libraries) {
    if (folder && fs::exists(*folder / name)) try_open((*folder / name).string());
  }
  return library;
}

Opened open(const Module& module) {
  std::string problem;
  // Global, because the module and the components of Open MPI use its symbols.
  if (!open_library(module, RTLD_GLOBAL, problem)) return {nullptr, problem};
  void* const opened = dlopen((module_folder() / module.file).c_str(), RTLD_NOW);
  if (!opened) return {nullptr, dlerror()};
  const auto* const calls = static_cast<const MpiCalls*>(dlsym(opened, "tessera_mpi_calls"));
  return {calls, calls ? "" : dlerror()};
}

const Opened& opened_for_launcher() {
  static const Opened kOpened = [] {
    Opened last;
    for (const Module* module : {&kOpenMpi, &kMpich}) {
      for (const char* variable : module->of_its_launchers) {
        if (!std::getenv(variable) || !has_mpi_calls() || last.calls) continue;
        last = open(*module);
      }
    }
    return last;
  }();
  return kOpened;
}

}  // namespace

const MpiCalls* mpi_calls() {
  return opened_for_launcher().calls;
}

bool has_mpi_calls() {
  static const bool kHas = !module_folder().empty() && fs::exists(module_folder() / kOpenMpi.file);
  return kHas;
}

std::string reason_of_no_mpi() {
  return opened_for_launcher().problem;
}

std::vector<std::string> describe_mpi_libraries() {
  std::vector<std::string> lines;
  if (!has_mpi_calls()) return lines;
  for (const Module* module : {&kOpenMpi, &kMpich}) {
    std::string problem;
    void* const library = open_library(*module, RTLD_LOCAL, problem);
    auto* const version =
        library ? reinterpret_cast<int (*)(char*, int*)>(dlsym(library, "MPI_Get_library_version")) : nullptr;
    char text[kMpiTextBytes] = {};
    int length = 0;
    if (version) version(text, &length);
    lines.push_back(version ? parse_mpi_flavour(text).text : problem);
  }
  return lines;
}

#endif

}  // namespace tessera
