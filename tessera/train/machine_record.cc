#include "tessera/train/machine_record.h"

#include <nlohmann/json.hpp>
#include <set>
#include <string>

#include "tessera/base/host_resources.h"
#include "tessera/device/cuda/cuda_device.h"
#include "tessera/store/process.h"

namespace tessera {

using Names = std::vector<std::string>;

Record machine_record(Communicator& world, bool on_gpu) {
  Record mine{{"hosts", Names{ProcessIdentity::self().host}},
              {"cpus", Names{value_of_key("/proc/cpuinfo", "model name").value_or("unknown")}}};
  if (on_gpu) {
    Names gpus;
    for (const CudaDeviceInfo& gpu : cuda_info().devices) gpus.push_back(gpu.name);
    mine["gpus"] = gpus;
  }
  const std::vector<std::string> texts = world.all_gather_text(to_json(mine), "machines");
  Record machine = Record::object();
  for (const auto& [key, ours] : mine.items()) {
    std::set<std::string> names;
    for (const std::string& text : texts) {
      const auto theirs = record_from_json(text, "another rank's machine").at(key).get<Names>();
      names.insert(theirs.begin(), theirs.end());
    }
    machine[key] = names;
  }
  return machine;
}

}  // namespace tessera
