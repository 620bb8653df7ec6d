// Facts about libraries and programs. The functions of BLAS, of the text libraries and of the GPU driver are looked up
// by name at run time. Therefore the facts describe this machine, not the machine that built the program.
#include <dlfcn.h>
#include <fmt/format.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <memory>
#include <nlohmann/json.hpp>
#include <optional>
#include <sstream>
#include <vector>

#include "tessera/app/machine.h"
#include "tessera/base/error.h"
#include "tessera/base/process.h"
#include "tessera/base/text.h"
#include "tessera/comm/mpi/mpi_library.h"
#include "tessera/comm/mpi_flavour.h"
#include "tessera/comm/nccl/nccl_communicator.h"
#include "tessera/device/cuda/architectures.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/device/nvml/gpu_health.h"
#include "tessera/device/nvml/nvml.h"
#include "tessera/ops/back_ends.h"

// Functions of the libraries that the program is linked with. Null if a library lacks them.
extern "C" {
[[gnu::weak]] char* openblas_get_config();
[[gnu::weak]] int openblas_get_num_threads();
[[gnu::weak]] char* openblas_get_corename();
[[gnu::weak]] void MKL_Get_Version_String(char* text, int size);
[[gnu::weak]] int MKL_Get_Max_Threads();
[[gnu::weak]] const char* bli_info_get_version_str();
[[gnu::weak]] int64_t bli_thread_get_num_threads();
[[gnu::weak]] void cblas_sgemm();  // only its address is used
[[gnu::weak]] const char* onig_version();
[[gnu::weak]] const char* utf8proc_version();
}

namespace tessera {

using Json = nlohmann::ordered_json;

namespace {

// A shared library, open for the lifetime of the object. Opens the first of `names` that this machine has. If the
// machine has none of them, the object converts to false.
class Library {
 public:
  explicit Library(std::initializer_list<const char*> names) {
    for (const char* name : names) {
      if (!handle_) handle_ = dlopen(name, RTLD_NOW | RTLD_LOCAL);
    }
  }
  ~Library() {
    if (handle_) dlclose(handle_);
  }
  Library(const Library&) = delete;
  Library& operator=(const Library&) = delete;

  explicit operator bool() const { return handle_ != nullptr; }
  template <typename Function>
  Function* find(const char* name) const {
    return handle_ ? reinterpret_cast<Function*>(dlsym(handle_, name)) : nullptr;
  }

 private:
  void* handle_ = nullptr;
};

Json blas_facts() {
  Json facts = Json::object();
  if (openblas_get_config) {
    facts["name"] = openblas_get_config();
    if (openblas_get_num_threads) facts["threads"] = openblas_get_num_threads();
    if (openblas_get_corename) facts["kernels"] = openblas_get_corename();
  } else if (MKL_Get_Version_String) {
    char text[256] = {};
    MKL_Get_Version_String(text, sizeof text - 1);
    facts["name"] = text;
    if (MKL_Get_Max_Threads) facts["threads"] = MKL_Get_Max_Threads();
  } else if (bli_info_get_version_str) {
    facts["name"] = fmt::format("BLIS {}", bli_info_get_version_str());
    if (bli_thread_get_num_threads) facts["threads"] = bli_thread_get_num_threads();
  } else {
    facts["name"] = "unknown";
  }
  Dl_info info{};
  if (cblas_sgemm && dladdr(reinterpret_cast<void*>(&cblas_sgemm), &info) && info.dli_fname) {
    std::error_code error;
    const auto path = std::filesystem::canonical(info.dli_fname, error);
    facts["file"] = error ? info.dli_fname : path.string();
  }
  return facts;
}

// CUDA writes versions as 1000 × major + 10 × minor.
std::string cuda_version_text(int version) {
  return fmt::format("{}.{}", version / 1000, version % 1000 / 10);
}

// Returns facts about the GPUs that the driver finds. The function types below repeat cuda.h, because a build without
// CUDA does not have this header. CUdevice is int, and CUresult is an enum of the same size.
Json gpus_of(const Library& driver) {
  Json gpus = Json::array();
  auto* init = driver.find<int(unsigned)>("cuInit");
  auto* count_of = driver.find<int(int*)>("cuDeviceGetCount");
  auto* name_of = driver.find<int(char*, int, int)>("cuDeviceGetName");
  auto* memory_of = driver.find<int(size_t*, int)>("cuDeviceTotalMem_v2");
  auto* attribute_of = driver.find<int(int*, int, int)>("cuDeviceGetAttribute");
  auto* address_of = driver.find<int(char*, int, int)>("cuDeviceGetPCIBusId");
  int count = 0;
  if (!init || !count_of || init(0) != 0 || count_of(&count) != 0) return gpus;
  constexpr int kCapabilityMajor = 75, kCapabilityMinor = 76;  // CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*
  for (int device = 0; device < count; ++device) {
    char name[128] = {};
    size_t bytes = 0;
    int major = 0, minor = 0;
    Json gpu = Json::object();
    if (name_of && name_of(name, sizeof name - 1, device) == 0) gpu["name"] = name;
    char address[32] = {};
    if (address_of && address_of(address, sizeof address - 1, device) == 0) {
      gpu["pci_address"] = address;
      const GpuHealth health = gpu_health(address);
      if (health.uncorrected_errors) gpu["uncorrected_errors"] = *health.uncorrected_errors;
      if (health.slowed_by && !health.slowed_by->empty()) gpu["slowed_by"] = *health.slowed_by;
    }
    if (memory_of && memory_of(&bytes, device) == 0) gpu["memory_bytes"] = bytes;
    if (attribute_of && attribute_of(&major, kCapabilityMajor, device) == 0 &&
        attribute_of(&minor, kCapabilityMinor, device) == 0) {
      gpu["compute_capability"] = fmt::format("{}.{}", major, minor);
    }
    gpus.push_back(gpu);
  }
  return gpus;
}

// Adds the versions of the driver and of its management library (NVML). NVML returns both, so the driver is "not found"
// if NVML is missing.
void add_driver(Json& facts) {
  facts["driver"] = "not found";
  try {
    const Nvml nvml;
    if (const std::string version = nvml.driver_version(); !version.empty()) facts["driver"] = version;
    facts["nvml"] = nvml.version().empty() ? "unknown version" : nvml.version();
  } catch (const RunError& error) {
    facts["nvml"] = error.what();
  }
}

void mark_unusable(Json& gpus, const std::string& architectures) {
  for (Json& gpu : gpus) {
    const auto capability = gpu.find("compute_capability");
    if (capability == gpu.end()) continue;
    std::string digits = capability->get<std::string>();
    std::erase(digits, '.');
    if (has_no_code_for(std::stoi(digits), architectures)) {
      gpu["problem"] = fmt::format("this program has no code for this GPU, only for {}", architectures);
    }
  }
}

// The beginning of a command's output.
std::string beginning_of(const std::string& command) {
  const auto close = [](std::FILE* pipe) { pclose(pipe); };
  std::unique_ptr<std::FILE, decltype(close)> pipe(popen(command.c_str(), "r"), close);
  if (!pipe) return "";
  std::string text(1024, '\0');
  text.resize(std::fread(text.data(), 1, text.size(), pipe.get()));
  while (std::fgetc(pipe.get()) != EOF) {
  }  // reads the remaining output, because a closed pipe would kill the command
  return text;
}

}  // namespace

Json library_facts() {
  Json facts = {{"blas", blas_facts()}};
  if (onig_version) facts["oniguruma"] = onig_version();
  if (utf8proc_version) facts["utf8proc"] = utf8proc_version();
  return facts;
}

Json mpi_facts(const Environment& environment) {
  Json facts = {{"built_in", has_mpi_calls()}};
  if (has_mpi_calls()) facts["library"] = joined(describe_mpi_libraries(), "; ");
  if (const auto mpirun = program_in_path(environment, "mpirun")) {
    facts["mpirun"] = *mpirun;
    facts["version"] = parse_mpi_flavour(beginning_of(quoted_for_shell(*mpirun) + " --version 2>/dev/null")).text;
  } else {
    facts["mpirun"] = "not found";
  }
  return facts;
}

Json accelerator_facts() {
  const CudaInfo info = cuda_info();
  Json facts = {{"built_in", info.built}};
  if (info.built) {
    facts["toolkit"] = info.toolkit;
    facts["architectures"] = info.architectures;
  }
  if (!info.problem.empty()) facts["problem"] = info.problem;
  add_driver(facts);
  const Library driver{"libcuda.so.1"};
  int version = 0;
  auto* version_of = driver.find<int(int*)>("cuDriverGetVersion");
  facts["cuda"] = version_of && version_of(&version) == 0 ? cuda_version_text(version) : "not found";
  facts["gpus"] = gpus_of(driver);
  if (info.built) mark_unusable(facts["gpus"], info.architectures);
  facts["nccl"] = nccl_description();
  facts["cublaslt"] = cublas_lt_description();
  facts["cudnn"] = "not used: Tessera has its own attention kernels";
  return facts;
}

}  // namespace tessera
