#include "tessera/plan/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <limits>
#include <nlohmann/json.hpp>
#include <tuple>

#include "tessera/base/option_names.h"
#include "tessera/base/text.h"
#include "tessera/settings/engine_options.h"
#include "tessera/settings/rules/sharding_rules.h"
#include "tessera/settings/setting.h"

namespace tessera {
namespace {

using S = Settings;

// The rates of one rank. Only the ratios between these rates matter, because the search only compares times. These
// ratios are similar on all CPUs, and they are similar on all GPUs.
struct NominalMachine {
  double flops_per_s;
  double half_speed_tokens;           // a micro-batch with this number of tokens runs at half speed
  double within_node, between_nodes;  // bytes/s that a rank sends
  double host, file;                  // bytes/s between device and host memory; bytes/s to and from files
  double update;                      // bytes/s that AdamW reads and writes on the host
};
constexpr NominalMachine kCpu{2e11, 16, 4e9, 1e9, 8e9, 1e9, 1e10};
constexpr NominalMachine kGpu{3e14, 512, 2e11, 2.5e10, 2.5e10, 3e9, 5e10};

// Bytes that AdamW reads and writes per element for the parameter (its master, if it has one) and the moments m and v.
// The gradient is not included. Moments in 8 bits take 4.06 bytes, and their fp32 master takes 8 bytes.
double update_bytes(const EngineOptions& options) {
  return options.optimizer_states == OptimizerStates::fp32 ? 24 : 12;
}

const NominalMachine& nominal(DeviceKind device) {
  return device == DeviceKind::cuda ? kGpu : kCpu;
}

std::vector<ShardingStrategy> strategies(const FitRequest& request) {
  using enum ShardingStrategy;
  if (request.fixed.contains("strategy")) return {request.settings.strategy};
  // A single rank has nothing to shard. The search therefore tries only no_shard, and full_shard for offloaded
  // parameters.
  if (request.rank.world_size == 1) return {no_shard, full_shard};
  std::vector<ShardingStrategy> all{no_shard, zero1, zero2, shard_grad_op, full_shard};
  const int64_t group = request.settings.shard_group_size;
  if ((group > 0 ? group : request.rank.ranks_per_node) < request.rank.world_size) {
    all.insert(all.end(), {hybrid_shard, hybrid_shard_zero2});
  }
  return all;
}

std::vector<Offload> offloads(const FitRequest& request) {
  using enum Tier;
  if (request.fixed.contains("offload")) return {request.settings.offload};
  std::vector<Offload> all{{}};
  const auto add = [&](Tier tier) {
    for (const Tier gradients : {device, tier}) all.push_back({tier, gradients, device});
    for (const Tier gradients : {device, tier}) all.push_back({tier, gradients, tier});
  };
  if (!request.limits.one_memory)
    add(host);  // if host and device share one memory, offloading to the host frees nothing
  if (request.limits.disk_bytes > 0) add(file);
  return all;
}

// The numbers of checkpointed blocks for which find_fit() searches the largest batch size: the fixed number, or none
// and all. fewest_checkpointed() tries the numbers between none and all.
std::vector<Recomputation> checkpointings(const FitRequest& request) {
  if (request.fixed.contains("activation_checkpointing")) return {request.settings.activation_checkpointing};
  return {{}, {.blocks = kAllBlocks}};
}

// The batch sizes to try, in ascending order. Each size divides batch_size × grad_accum. For each power of two P, the
// list has the largest divisor from P/2 + 1 to P, if one exists. The list also has batch_size itself. Sizes above the
// limits of the kernels are left out.
std::vector<int64_t> batch_sizes(const FitRequest& request) {
  const Settings& s = request.settings;
  const bool by_tokens = s.batch_tokens > 0;  // another number of tokens would change the results
  if (by_tokens || request.fixed.contains("batch_size") || request.fixed.contains("grad_accum")) return {s.batch_size};
  constexpr int64_t kMost = 1024;
  const auto divides = [&](int64_t size) { return s.batch_size % size * s.grad_accum % size == 0; };
  std::set<int64_t> sizes{1};
  const auto add = [&](int64_t size) {
    Settings with_size = s;
    with_size.batch_size = size;
    if (is_supported(request.work_of(with_size).training, request.config)) sizes.insert(size);
  };
  for (int64_t bound = 2; bound <= kMost; bound *= 2) {
    int64_t size = bound;
    while (!divides(size)) --size;
    if (size > bound / 2) add(size);
  }
  add(s.batch_size);
  return {sizes.begin(), sizes.end()};
}

// The result of search_batch_size(): the configuration with the largest batch size that fits, and the configuration
// with the next larger batch size, which does not fit. The search can bisect, because memory grows with the batch size.
// Smaller sizes are of no interest, because speed grows with the batch size too.
struct Row {
  std::optional<Configuration> fitting, too_large;
};

Row search_batch_size(const FitRequest& request, const std::vector<int64_t>& sizes, Settings settings,
                      double step_tokens) {
  Row row;
  const int64_t product = settings.batch_size * settings.grad_accum;
  for (size_t begin = 0, end = sizes.size(); begin < end;) {
    // Try the largest size first, because it often fits. Then bisect.
    const size_t i = row.too_large || row.fitting ? (begin + end) / 2 : end - 1;
    settings.batch_size = sizes[i];
    if (sizes[i] > 0) settings.grad_accum = product / sizes[i];
    Configuration c = plan_configuration(request, settings, step_tokens);
    if (c.excess.fits()) {
      row.fitting = std::move(c);
      begin = i + 1;
    } else {
      row.too_large = std::move(c);
      end = i;
    }
  }
  return row;
}

// For a batch size that does not fit without checkpointed blocks: finds the configuration with the fewest checkpointed
// blocks that fits. More checkpointed blocks need less memory and more time. Returns nothing if a step of this
// configuration takes `limit_s` seconds or more, or if the run fits only with all blocks checkpointed.
std::optional<Configuration> fewest_checkpointed(const FitRequest& request, Settings settings, double step_tokens,
                                                 double limit_s) {
  std::optional<Configuration> found;
  int64_t begin = 1, end = request.config.num_layers;  // the numbers in [begin, end) are still to try
  for (int64_t blocks = 1; begin < end; blocks = (begin + end) / 2) {
    settings.activation_checkpointing = {.blocks = blocks};
    Configuration c = plan_configuration(request, settings, step_tokens);
    if (c.cost.total_s() >= limit_s) {
      end = blocks;  // more checkpointed blocks take even more time
    } else if (c.excess.fits()) {
      end = blocks;
      found = std::move(c);
    } else {
      begin = blocks + 1;
    }
  }
  return found;
}

}  // namespace

Configuration plan_configuration(const FitRequest& request, const Settings& settings, double step_tokens) {
  Configuration c{.settings = settings, .plan = {}, .cost = {}, .excess = {}};
  const WorkBounds work = request.work_of(settings);
  PlannedRank rank = request.rank;
  rank.rank = 0;
  c.plan = plan_training(request.config, settings, work, rank);
  c.cost = step_cost(settings, c.plan, work, rank, step_tokens);
  c.excess = excess_of(c.plan, request.limits);
  return c;
}

Excess excess_of(const Plan& plan, const MemoryLimits& limits) {
  const auto excess = [](const std::vector<const Ledger*>& ledgers, int64_t limit_bytes, int64_t peak_bytes) {
    Excess e{.bytes = peak_bytes - limit_bytes, .limit_bytes = limit_bytes};
    const auto total = [&](Phase phase) {
      int64_t sum = 0;
      for (const Ledger* ledger : ledgers) sum += ledger->peak_total(phase);
      return sum;
    };
    for (int p = 0; p < kNumPhases && total(Phase::step) <= limit_bytes; ++p) {
      if (total(static_cast<Phase>(p)) > total(e.phase)) e.phase = static_cast<Phase>(p);
    }
    for (const Ledger* ledger : ledgers) {
      for (int c = 0; c < kNumCategories; ++c) {
        const auto category = static_cast<Category>(c);
        const int64_t bytes = ledger->peak(e.phase, category);
        if (bytes > e.largest_bytes) std::tie(e.largest_bytes, e.largest) = std::tie(bytes, category);
      }
    }
    return e;
  };
  const Excess device = limits.one_memory ? excess({&plan.device, &plan.host}, limits.device_bytes, plan.peak_bytes())
                                          : excess({&plan.device}, limits.device_bytes, plan.device.peak_total());
  Excess most = device;
  if (!limits.one_memory && plan.host.peak_total() - limits.host_bytes > std::max<int64_t>(0, most.bytes)) {
    most = excess({&plan.host}, limits.host_bytes, plan.host.peak_total());
    most.of = Excess::Of::host;
  }
  if (plan.file_bytes - limits.disk_bytes > std::max<int64_t>(0, most.bytes)) {
    most = {.bytes = plan.file_bytes - limits.disk_bytes, .limit_bytes = limits.disk_bytes, .of = Excess::Of::disk};
  }
  return most;
}

StepCost step_cost(const Settings& settings, const Plan& plan, const WorkBounds& work, const PlannedRank& rank,
                   double step_tokens) {
  const NominalMachine& m = nominal(rank.device);
  StepCost cost;
  const auto tokens = static_cast<double>(std::max<int64_t>(1, work.training.num_tokens));
  const double flops = static_cast<double>(plan.micro_batch_flops) / tokens * step_tokens;
  cost.compute_s = flops / m.flops_per_s * (1 + m.half_speed_tokens / tokens);
  const auto within = static_cast<double>(plan.step_bytes_sent_within_nodes);
  cost.communication_s =
      within / m.within_node + (static_cast<double>(plan.step_bytes_sent) - within) / m.between_nodes;

  const EngineOptions options = engine_options(settings);
  const ShardOptions& o = options.sharding;
  const ShardPlan shards(o, rank.world_size, rank.rank, rank.ranks_per_node);
  const auto P = static_cast<double>(plan.num_parameters), trained = static_cast<double>(plan.num_trainable_parameters),
             S = static_cast<double>(shards.shard_group_size());
  const double updated = shards.shard_optimizer() ? trained / S : trained, kept = shards.shard_parameters() ? P / S : P;
  const auto size = static_cast<double>(size_of(options.dtype)), accum = static_cast<double>(settings.grad_accum);
  const auto gradient_size = static_cast<double>(size_of(gradient_dtype(options.dtype, o.reduce_dtype)));
  const double sum_size = accum > 1 ? sizeof(float) : gradient_size;  // bytes of one element of a step's gradient sum
  double host_bytes = 0, file_bytes = 0, host_updates = 0;
  const auto moved = [&](Tier tier, double bytes) {
    if (tier != Tier::device) host_bytes += bytes;
    if (tier == Tier::file) file_bytes += bytes;
  };
  const Offload& offload = o.offload;
  // The share of the arrays that is not on the device. Files have no ledger: if only some blocks are in files, the cost
  // counts all of them.
  const auto share = [&](Tier tier, Category category) {
    const auto here = static_cast<double>(plan.device.peak(Phase::step, category)),
               away = static_cast<double>(plan.host.peak(Phase::step, category));
    return tier == Tier::host && here + away > 0 ? away / (here + away) : 1.0;
  };
  if (offload.optimizer != Tier::device) {
    host_updates = updated * share(offload.optimizer, Category::optimizer);
    host_bytes += host_updates * (size + (offload.gradients == Tier::device ? sum_size : 0));
    if (offload.optimizer == Tier::file) file_bytes += update_bytes(options) * updated;
  }
  moved(offload.gradients, gradient_size * updated * accum * share(offload.gradients, Category::gradients));
  moved(offload.parameters,
        (shards.free_after_forward() ? 2 : 1) * size * kept * accum * share(offload.parameters, Category::parameters));
  cost.offload_s =
      host_bytes / m.host + file_bytes / m.file + (update_bytes(options) + sum_size) * host_updates / m.update;
  return cost;
}

Record cost_model(DeviceKind device) {
  const NominalMachine& m = nominal(device);
  return {{"compute_s",
           "FLOPs of a step (with recomputation) / flops_per_s x (1 + half_speed_tokens / tokens of a micro-batch)"},
          {"communication_s", "bytes sent / within_node_bytes_per_s or between_nodes_bytes_per_s"},
          {"offload_s",
           "bytes between tiers / host_bytes_per_s or file_bytes_per_s, plus elements that the host updates x (bytes "
           "of an element's gradient + 24, or + 12 with bf16 or 8-bit optimizer states) / update_bytes_per_s"},
          {"flops_per_s", m.flops_per_s},
          {"half_speed_tokens", m.half_speed_tokens},
          {"within_node_bytes_per_s", m.within_node},
          {"between_nodes_bytes_per_s", m.between_nodes},
          {"host_bytes_per_s", m.host},
          {"file_bytes_per_s", m.file},
          {"update_bytes_per_s", m.update}};
}

const std::vector<std::string>& searched_names() {
  static const std::vector<std::string> names{"strategy", "offload", "activation_checkpointing", "batch_size",
                                              "grad_accum"};
  return names;
}

Record searched_settings(const Settings& settings) {
  Record record;
  for (const std::string& name : searched_names()) {
    const SettingValue value = find_setting(name)->get(settings);
    std::visit([&](const auto& v) { record[name] = v; }, value);
  }
  return record;
}

std::vector<std::pair<std::string, std::string>> flags_between(const Settings& from, const Settings& to) {
  std::vector<std::pair<std::string, std::string>> flags;
  const auto add = [&](const std::string& name) {
    const Setting& setting = *find_setting(name);
    const SettingValue value = setting.get(to);
    if (value == setting.get(from)) return;
    flags.emplace_back(setting.flag(), plain_text(value));
  };
  for (const std::string& name : searched_names()) add(name);
  for (const char* name : {"offload_dir", "eval_batch_size"}) add(name);
  return flags;
}

FitResult find_fit(const FitRequest& request) {
  const double step_tokens =
      static_cast<double>(request.work_of(request.settings).training.num_tokens * request.settings.grad_accum);
  const std::vector<int64_t> sizes = batch_sizes(request);
  std::vector<Configuration> too_large;
  FitResult result;
  const auto best_s = [&] {
    return result.best ? result.best->cost.total_s() : std::numeric_limits<double>::infinity();
  };
  const auto take_if_faster = [&](std::optional<Configuration> c) {
    if (c && c->cost.total_s() < best_s()) result.best = std::move(c);
  };
  for (const ShardingStrategy strategy : strategies(request)) {
    for (const Offload& offload : offloads(request)) {
      Settings settings = request.settings;
      settings.strategy = strategy;
      settings.offload = offload;
      if (offload.uses(Tier::file)) settings.offload_dir = offload_folder(settings);
      const bool same_as_no_shard = request.rank.world_size == 1 && strategy == ShardingStrategy::full_shard &&
                                    offload.parameters == Tier::device;
      if (same_as_no_shard && !request.fixed.contains("strategy")) continue;
      if (fault_of_sharding(settings, request.rank.world_size, request.rank.ranks_per_node)) continue;
      // For each of checkpointings(): the largest batch size that fits, or 0 if none fits.
      std::vector<int64_t> fitting_sizes;
      for (const Recomputation& checkpointing : checkpointings(request)) {
        settings.activation_checkpointing = checkpointing;
        Row row = search_batch_size(request, sizes, settings, step_tokens);
        fitting_sizes.push_back(row.fitting ? row.fitting->settings.batch_size : 0);
        take_if_faster(std::move(row.fitting));
        if (row.too_large) too_large.push_back(std::move(*row.too_large));
      }
      if (fitting_sizes.size() == 1) continue;
      const int64_t product = settings.batch_size * settings.grad_accum;
      for (const int64_t size : sizes) {
        if (size <= fitting_sizes.front() || size > fitting_sizes.back()) continue;
        settings.batch_size = size;
        settings.grad_accum = product / size;
        take_if_faster(fewest_checkpointed(request, settings, step_tokens, best_s()));
      }
    }
  }
  const auto by_cost = [](const Configuration& a, const Configuration& b) {
    return a.cost.total_s() < b.cost.total_s();
  };
  const auto by_excess = [](const Configuration& a, const Configuration& b) { return a.excess.bytes < b.excess.bytes; };
  std::stable_sort(too_large.begin(), too_large.end(), by_cost);
  if (!result.best && !too_large.empty()) {
    result.smallest = *std::min_element(too_large.begin(), too_large.end(), by_excess);
  }
  if (!result.best && !result.smallest) {
    throw UsageError(option_place("fit"), "the settings that are given permit no combination of strategy and offload",
                     "Leave out --offload or --strategy, and --fit chooses it");
  }
  for (Configuration& c : too_large) {
    if (!result.best || by_cost(c, *result.best)) result.faster.push_back(std::move(c));
  }
  return result;
}

}  // namespace tessera
