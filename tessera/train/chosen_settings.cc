#include "tessera/train/chosen_settings.h"

#include <fmt/format.h>

#include <algorithm>
#include <filesystem>
#include <nlohmann/json.hpp>

#include "tessera/base/counted.h"
#include "tessera/base/option_names.h"
#include "tessera/base/read_file.h"
#include "tessera/base/text.h"
#include "tessera/plan/known_gpus.h"
#include "tessera/plan/machines.h"
#include "tessera/plan/plan_report.h"
#include "tessera/store/all_ranks.h"
#include "tessera/store/checkpoint.h"
#include "tessera/store/checkpoint_writer.h"

namespace tessera {

namespace fs = std::filesystem;

namespace {

// The settings of a choice, and the folder that an offload to files needs.
std::vector<std::string> names_of_choice() {
  std::vector<std::string> names = searched_names();
  names.push_back("offload_dir");
  return names;
}

// The settings with the values of a choice. Throws if the record is not one.
Settings with_values(Settings settings, const Record& choice) {
  for (const std::string& name : names_of_choice()) {
    const Setting& setting = *find_setting(name);
    const Record& value = choice.at(name);
    setting.set(settings, parse_value(setting, value.is_string() ? value.get<std::string>() : to_json(value), name));
  }
  return settings;
}

// The choice in the newest checkpoint that the run may continue from. Null if there is none: errors of a checkpoint are
// reported when the run reads it.
Record earlier_choice(const Settings& settings) {
  if (settings.resume == "none") return {};
  const bool is_auto = settings.resume == "auto";
  fs::path folder = is_auto ? fs::path(settings.output_dir) : fs::path(settings.resume);
  if (const std::vector<int64_t> steps = checkpoint_steps(folder); !steps.empty()) {
    folder = checkpoint_folder(folder, *std::ranges::max_element(steps));
  } else if (is_auto) {
    return {};
  }
  try {
    const std::string file = (folder / "trainer_state.json").string();
    return record_from_json(read_file(file, {}), file).value("choice", Record());
  } catch (const std::exception&) {
    return {};
  }
}

// Whether `chosen` is `given` with every `auto` replaced.
bool is_of(const Offload& given, const Offload& chosen) {
  const auto is_kind_of = [](Tier tier, const OffloadedPart& part, Tier chosen_tier, const OffloadedPart& chosen_part) {
    if (tier == Tier::device || part.of != OffloadedPart::Of::automatic) {
      return chosen_tier == tier && (tier == Tier::device || chosen_part == part);
    }
    return chosen_tier == Tier::device || chosen_tier == tier;
  };
  return is_kind_of(given.optimizer, given.part_of_optimizer, chosen.optimizer, chosen.part_of_optimizer) &&
         is_kind_of(given.gradients, given.part_of_gradients, chosen.gradients, chosen.part_of_gradients) &&
         is_kind_of(given.parameters, given.part_of_parameters, chosen.parameters, chosen.part_of_parameters);
}

// Whether a search from `given` may choose these settings.
bool permits(const std::set<std::string>& fixed, const Settings& given, const Settings& chosen) {
  if (given.batch_size * given.grad_accum != chosen.batch_size * chosen.grad_accum) return false;
  return std::ranges::all_of(searched_names(), [&](const std::string& name) {
    if (!fixed.contains(name)) return true;
    if (name == "offload") return is_of(given.offload, chosen.offload);
    if (name == "activation_checkpointing" && given.activation_checkpointing.automatic) return true;
    const Setting& setting = *find_setting(name);
    return setting.get(given) == setting.get(chosen);
  });
}

}  // namespace

std::set<std::string> fixed_settings(const ResolvedSettings& resolved) {
  std::set<std::string> fixed;
  for (const auto& [name, origin] : resolved.origins) {
    const bool given = origin.kind == Origin::Kind::flag || origin.kind == Origin::Kind::deepspeed;
    if (given || resolved.settings.fit == 0) fixed.insert(name);
  }
  return fixed;
}

Record choice_record(const Settings& chosen, int world_size) {
  Record choice = searched_settings(chosen);
  choice["offload_dir"] = chosen.offload_dir;
  choice["world_size"] = world_size;
  return choice;
}

Settings chosen_settings(Session& session, FitRequest request) {
  const Settings& given = session.settings();
  Worker& worker = session.worker();
  Communicator& world = session.world();
  MemoryLimits limits = run_limits(given, worker.local_ranks().count, usable_gpu_bytes(worker.device()));
  // Other programs may take a little memory until the run has allocated its own.
  constexpr int64_t kSpare = 100;
  if (std::max(given.fit, given.device_memory) <= 0) limits.device_bytes -= limits.device_bytes / kSpare;
  if (given.host_memory == 0) limits.host_bytes -= limits.host_bytes / kSpare;
  for (int64_t* bytes : {&limits.device_bytes, &limits.host_bytes, &limits.disk_bytes}) {
    *bytes = -world.max(-*bytes, "the memory of a rank");
  }
  const auto choose = [&]() -> std::string {
    if (!worker.is_first()) return "";
    if (known_gpu_by_word(given.machine)) {
      throw UsageError(option_place("machine"), "a run is fitted to the machine that it runs on",
                       "Plan for a GPU with tessera plan, or give its memory as --fit SIZE");
    }
    const PlannedRank rank = worker.planned_rank();
    constexpr int kMany = 8;  // fewer ranks take about a second
    if (rank.world_size > kMany) session.console().note("Searching for the fastest configuration that fits ...");
    request.config = session.config();
    request.settings = given;
    request.rank = rank;
    request.limits = limits;
    request.machine = assumed_machine(given, rank);
    const Record before = earlier_choice(given);
    std::optional<Settings> earlier;
    if (before.is_object()) {
      earlier = with_values(given, before);
      const bool same_world = before.value("world_size", 0) == rank.world_size;
      if (same_world && permits(request.fixed, given, *earlier) &&
          plan_configuration(request, *earlier).excess.fits()) {
        session.console().note("The run keeps its configuration: " + summary_of(*earlier));
        return to_json(before);
      }
    }
    const FitResult fit = find_fit(request);
    if (!fit.best) refuse_to_fit(fit, limits, given);
    const Settings& best = fit.best->settings;
    session.console().note(
        fmt::format("Fastest configuration that fits: {}; {:.3g} s per step on {} ({}), {} of {}", summary_of(best),
                    fit.best->time.step_s, printable(request.machine.name), printable(request.machine.source),
                    format_bytes(limits.one_memory ? fit.best->plan.peak_bytes() : fit.best->plan.device.peak_total()),
                    limits.one_memory ? "memory" : "GPU memory"));
    if (earlier && searched_settings(*earlier) != searched_settings(best)) {
      session.console().note(
          fmt::format("The checkpoint's run had another configuration: {}, with {}. The state is the same; sums round "
                      "differently from here on",
                      summary_of(*earlier), counted(before.value("world_size", 0), "rank")));
    }
    return to_json(choice_record(best, rank.world_size));
  };
  const std::string text = on_all_ranks(world, "the fastest configuration", choose).front();
  return with_values(given, record_from_json(text, "the fastest configuration"));
}

ResolvedSettings with_choice(ResolvedSettings resolved, const Settings& chosen) {
  std::vector<std::string> names = names_of_choice();
  names.push_back("fit");
  for (const std::string& name : names) {
    const Setting& setting = *find_setting(name);
    const SettingValue value = name == "fit" ? setting.get(Settings()) : setting.get(chosen);
    if (value == setting.get(resolved.settings)) continue;
    setting.set(resolved.settings, value);
    const bool is_fit = name == "fit";
    resolved.origins[name] = {Origin::Kind::preset,
                              is_fit ? "its search chose the settings of this file" : "chosen by fit"};
  }
  return resolved;
}

}  // namespace tessera
