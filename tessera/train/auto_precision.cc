#include "tessera/train/auto_precision.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "tessera/base/error.h"
#include "tessera/base/read_file.h"
#include "tessera/settings/engine_options.h"
#include "tessera/store/checkpoint.h"
#include "tessera/train/train_state.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

using P = Settings::Precision;

bool is_open(const ResolvedSettings& resolved) {
  return resolved.origins.contains("precision") && resolved.settings.precision == P::automatic;
}

// The precision in a checkpoint. Empty if the folder is no readable checkpoint.
std::string precision_in(const fs::path& checkpoint) {
  const std::string file = (checkpoint / "trainer_state.json").string();
  try {
    const Record fingerprint = TrainState::fingerprint_in(read_file(file, {}), file);
    const std::string word = fingerprint.value("precision", "");
    const std::vector<std::string>& known = find_setting("precision")->choices;
    return word != "auto" && std::ranges::find(known, word) != known.end() ? word : "";
  } catch (const Error&) {
  } catch (const nlohmann::json::exception&) {  // the value is not a text
  }
  return "";
}

std::vector<int64_t> steps_in(const fs::path& folder) {
  try {
    return checkpoint_steps(folder);
  } catch (const Error&) {
    return {};
  }
}

}  // namespace

RecordedPrecision recorded_precision(const Settings& settings) {
  if (settings.resume == "none") return {};
  const fs::path folder = settings.resume == "auto" ? settings.output_dir : settings.resume;
  if (folder.empty()) return {};
  std::vector<fs::path> candidates;
  const std::vector<int64_t> steps = steps_in(folder);
  for (auto step = steps.rbegin(); step != steps.rend(); ++step) {
    candidates.push_back(folder / fmt::format("checkpoint-{}", *step));
  }
  candidates.push_back(folder);
  for (const fs::path& checkpoint : candidates) {
    const std::string precision = precision_in(checkpoint);
    if (!precision.empty()) return {precision, checkpoint.string()};
  }
  return {};
}

void settle_precision(ResolvedSettings& resolved, const RunDevices& devices, const RecordedPrecision& recorded) {
  if (!is_open(resolved)) return;
  Settings& s = resolved.settings;
  const bool has_bf16 = devices.on_gpus && devices.without_bf16.empty();
  if (recorded.precision.empty()) {
    s.precision = has_bf16 ? P::bf16 : P::fp32;
    s.precision_reason =
        devices.without_bf16.empty()
            ? "auto"
            : fmt::format("auto: {} has no bf16. fp16 is faster, but overflows above 65504", devices.without_bf16);
  } else {
    const Setting& precision = *find_setting("precision");
    precision.set(s, recorded.precision);
    const bool is_supported =
        s.precision == P::fp32 || s.precision == P::fp16 || has_bf16 || (s.precision == P::bf16 && !devices.on_gpus);
    if (!is_supported) {
      throw UsageError(
          resolved.where("precision"),
          fmt::format("auto continues {} in {}, but {} does not support {}", recorded.checkpoint, recorded.precision,
                      devices.on_gpus ? devices.without_bf16 : "the CPU", recorded.precision),
          fmt::format(
              "Continue on a GPU of compute capability 8.0 or later, or begin a new run from there with another "
              "--output-dir: --resume {} --precision fp32",
              recorded.checkpoint));
    }
    s.precision_reason = "auto, as in " + recorded.checkpoint;
  }
  Origin& origin = resolved.origins.at("precision");
  // A repeated command writes the same resolved-config.toml, so the place does not name the checkpoint.
  if (origin.kind == Origin::Kind::preset) origin.place = recorded.precision.empty() ? s.precision_reason : "auto";
  check_consistent(resolved);  // for example, bf16 optimizer states need the precision bf16
}

void settle_precision(ResolvedSettings& resolved, World* world) {
  if (!is_open(resolved)) return;
  RunDevices devices;
  RecordedPrecision recorded;
  const Settings& s = resolved.settings;
  if (uses_cuda(s)) {
    devices.on_gpus = true;
    const CudaInfo info = cuda_info();
    const auto ordinal = static_cast<size_t>(cuda_ordinal_of_rank(world ? world->local_rank() : 0));
    if (ordinal < info.devices.size() && !has_bf16(info.devices[ordinal])) {
      devices.without_bf16 = info.devices[ordinal].name;
    }
  }
  if (resolved.groups & kCheckpoints && (!world || world->rank() == 0)) recorded = recorded_precision(s);
  if (world) {
    // The ranks may have different GPUs, and only rank 0 has read the checkpoint.
    Communicator& ranks = world->communicator();
    for (const std::string& name : ranks.all_gather_text(devices.without_bf16, "GPUs without bf16")) {
      if (devices.without_bf16.empty()) devices.without_bf16 = name;
    }
    recorded.precision = ranks.all_gather_text(recorded.precision, "the checkpoint's precision")[0];
    recorded.checkpoint = ranks.all_gather_text(recorded.checkpoint, "the checkpoint's folder")[0];
  }
  settle_precision(resolved, devices, recorded);
}

void settle_planned_precision(ResolvedSettings& resolved) {
  if (!is_open(resolved)) return;
  RunDevices devices{.on_gpus = uses_cuda(resolved.settings), .without_bf16 = ""};
  for (const CudaDeviceInfo& gpu : cuda_info().devices) {
    if (devices.on_gpus && !has_bf16(gpu)) devices.without_bf16 = gpu.name;
  }
  settle_precision(resolved, devices, recorded_precision(resolved.settings));
}

}  // namespace tessera
