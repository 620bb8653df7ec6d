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

// Orders of offload, each from nothing to as much as possible. A later element needs less device memory than an earlier
// one. The units that are moved last are those whose forward is the first one of the next step, because the update of
// all others overlaps it (engine/shard_plan.h).
using Levels = std::vector<Offload>;

OffloadedPart blocks(int64_t number) {
  return {OffloadedPart::Of::blocks, number};
}

// The offload with `auto` replaced by the last `number` blocks; 0: by nothing, more than the model has: by everything.
Offload with_part(Offload offload, int64_t number, int64_t num_blocks) {
  const auto settle = [&](Tier& tier, OffloadedPart& part) {
    if (part.of != OffloadedPart::Of::automatic) return;
    if (number == 0) tier = Tier::device;
    part = number == 0 || number > num_blocks ? OffloadedPart() : blocks(number);
  };
  settle(offload.optimizer, offload.part_of_optimizer);
  settle(offload.gradients, offload.part_of_gradients);
  settle(offload.parameters, offload.part_of_parameters);
  return offload;
}

std::vector<Levels> offloads(const FitRequest& request) {
  const int64_t B = request.config.num_layers;
  const Offload& given = request.settings.offload;
  const auto levels_of = [&](const Offload& open) {
    Levels levels;
    for (int64_t number = 0; number <= B + 1; ++number) levels.push_back(with_part(open, number, B));
    return levels;
  };
  if (request.fixed.contains("offload")) return {given.has_automatic() ? levels_of(given) : Levels{given}};
  std::vector<Levels> all;
  const auto add = [&](Tier tier) {
    constexpr OffloadedPart kOpen{OffloadedPart::Of::automatic};
    // If a step has one micro-batch, gradients move to the host anyway, for the update there.
    if (request.settings.grad_accum > 1) all.push_back(levels_of({tier, Tier::device, Tier::device, kOpen}));
    Levels states = levels_of({tier, tier, Tier::device, kOpen, kOpen}),
           everything = levels_of({tier, tier, tier, {}, {}, kOpen});
    // Parameters follow when all states are gone. (The first element of `everything` is the last one of `states`.)
    if (tier == Tier::file) all.push_back(states);
    states.insert(states.end(), everything.begin() + 1, everything.end());
    all.push_back(std::move(states));
  };
  if (!request.limits.one_memory) add(Tier::host);  // if host and device share a memory, this frees nothing
  if (request.limits.disk_bytes > 0) add(Tier::file);
  if (all.empty()) all.push_back({Offload()});
  return all;
}

// Orders of recomputation, each from nothing to everything.
std::vector<std::vector<Recomputation>> recomputations(const FitRequest& request) {
  const Recomputation& given = request.settings.activation_checkpointing;
  if (request.fixed.contains("activation_checkpointing") && !given.automatic) return {{given}};
  const int64_t B = request.config.num_layers;
  const auto count = [B](int64_t n) { return n == B ? kAllBlocks : n; };
  // Attention is cheap to repeat for short sequences, and dear for long ones.
  std::vector<Recomputation> blocks{{}}, mlp{{}}, parts{{}};
  for (int64_t n = 1; n <= B; ++n) {
    blocks.push_back({.blocks = count(n)});
    mlp.push_back({.mlp = count(n)});
    parts.push_back({.attention = count(n)});
  }
  for (int64_t n = 1; n < B; ++n) mlp.push_back({.blocks = n, .mlp = kAllBlocks});
  for (int64_t n = 1; n <= B; ++n) parts.push_back({.mlp = count(n), .attention = kAllBlocks});
  return {blocks, mlp, parts};
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

// The members of a family, by the numbers of their recomputation and offload.
struct Family {
  Settings settings;  // strategy and batch size
  std::vector<Recomputation> recomputations;
  Levels levels;  // only those that the strategy permits

  Settings member(size_t recomputation, size_t level) const {
    Settings s = settings;
    s.activation_checkpointing = recomputations[recomputation];
    s.offload = levels[level];
    if (s.offload.uses(Tier::file)) s.offload_dir = offload_folder(s);
    return s;
  }
};

std::vector<Family> families(const FitRequest& request) {
  std::vector<Family> all;
  const std::vector<int64_t> sizes = batch_sizes(request);
  const int64_t product = request.settings.batch_size * request.settings.grad_accum;
  for (const ShardingStrategy strategy : strategies(request)) {
    std::vector<Levels> known;
    for (const Levels& levels : offloads(request)) {
      Settings settings = request.settings;
      settings.strategy = strategy;
      Levels permitted;
      for (const Offload& offload : levels) {
        Settings with_offload = settings;
        with_offload.offload = offload;
        if (offload.uses(Tier::file)) with_offload.offload_dir = offload_folder(settings);
        // A single rank shards parameters only to offload them.
        const bool is_pointless = request.rank.world_size == 1 && !request.fixed.contains("strategy") &&
                                  strategy == ShardingStrategy::full_shard && offload.parameters == Tier::device;
        const int world_size = request.rank.world_size;
        if (is_pointless || fault_of_sharding(with_offload, world_size, request.rank.ranks_per_node)) continue;
        permitted.push_back(offload);
      }
      if (permitted.empty() || std::ranges::find(known, permitted) != known.end()) continue;
      known.push_back(permitted);
      // Larger batches first: they are faster.
      for (size_t i = sizes.size(); i-- > 0;) {
        settings.batch_size = sizes[i];
        if (sizes[i] > 0) settings.grad_accum = product / sizes[i];
        for (const auto& order : recomputations(request)) all.push_back({settings, order, permitted});
      }
    }
  }
  return all;
}

class Search {
 public:
  explicit Search(const FitRequest& request) : request_(request), families_(families(request)) {
    if (!families_.empty()) return;
    throw UsageError(option_place("fit"), "the settings that are given permit no combination of strategy and offload",
                     "Leave out --offload, --strategy or --gather-dtype, and --fit chooses it");
  }

  // The best members of the families, the fastest first. At least one family is searched to its end.
  std::vector<Configuration> best_members(const MemoryLimits& limits) {
    limits_ = limits;
    std::vector<Configuration> found;
    double best_s = std::numeric_limits<double>::infinity();
    for (const Family& family : families_) {
      if (least_s(family.member(0, 0)) >= best_s) continue;
      if (auto member = best_of(family)) {
        best_s = std::min(best_s, weighed_s(member->settings));
        const auto same = [&](const Configuration& c) { return key_of(c.settings) == key_of(member->settings); };
        if (std::ranges::none_of(found, same)) found.push_back(std::move(*member));
      }
    }
    for (Configuration& c : found) c.time = time_of(c.settings, fuses(c.settings));
    std::ranges::stable_sort(found, {}, [this](const Configuration& c) { return weighed_s(c.settings); });
    return found;
  }

  // The member of all families that lacks the least memory.
  Configuration smallest() {
    std::optional<Configuration> least;
    for (const Family& family : families_) {
      const Settings member = family.member(family.recomputations.size() - 1, family.levels.size() - 1);
      Configuration c{member, run_plan_of(member), excess(member)};
      if (!least || c.excess.bytes < least->excess.bytes) least = std::move(c);
    }
    return *least;
  }

  int num_plans() const { return static_cast<int>(plans_.size() + fused_plans_.size()); }
  int num_simulations() const { return static_cast<int>(times_.size()); }

 private:
  static std::string key_of(const Settings& s) {
    return to_json(searched_settings(s)) + std::to_string(s.eval_batch_size);
  }
  const Plan& plan_of(const Settings& s) {
    const auto [at, is_new] = plans_.try_emplace(key_of(s));
    if (is_new) at->second = plan_configuration(request_, s).plan;
    return at->second;
  }
  // Null if the micro-batches of a step cannot be fused.
  const Plan* fused_plan_of(const Settings& s) {
    if (!request_.fused_of || s.grad_accum == 1) return nullptr;
    const auto [at, is_new] = fused_plans_.try_emplace(key_of(s));
    if (is_new) {
      const auto work = request_.fused_of(s);
      if (work) at->second = plan_training(request_.config, s, *work, first_rank());
    }
    return at->second ? &*at->second : nullptr;
  }
  bool fuses(const Settings& s) {
    const Plan* fused = fused_plan_of(s);
    return fused && fused->device.peak_total() <= limits_.device_bytes;
  }
  // The plan of the steps that the run would make.
  const Plan& run_plan_of(const Settings& s) { return fuses(s) ? *fused_plan_of(s) : plan_of(s); }
  PlannedRank first_rank() const {
    PlannedRank rank = request_.rank;
    rank.rank = 0;
    return rank;
  }
  const StepTime& time_of(const Settings& s, bool fused) {
    const auto [at, is_new] = times_.try_emplace({key_of(s), fused});
    if (is_new) {
      const WorkBounds work = fused ? request_.fused_typical_of(s) : request_.typical_of(s);
      at->second = step_time(request_.config, engine_options(s), work, first_rank(), request_.machine);
    }
    return at->second;
  }
  double step_s(const Settings& s) { return time_of(s, fuses(s)).step_s; }
  // The time if the memory suffices for everything.
  double least_s(const Settings& s) {
    const double separate_s = time_of(s, false).step_s;
    return fused_plan_of(s) ? std::min(separate_s, time_of(s, true).step_s) : separate_s;
  }
  // Of configurations that are about equally fast, those without offload are preferred, and those with files come last.
  double weighed_s(const Settings& s) {
    return step_s(s) * (1 + (s.offload.uses(Tier::host) ? 0.002 : 0) + (s.offload.uses(Tier::file) ? 0.02 : 0));
  }
  Excess excess(const Settings& s) { return excess_of(run_plan_of(s), limits_); }
  // More offload needs more host memory: only this excess falls with the level of offload.
  int64_t device_excess(const Plan& plan) const {
    return (limits_.one_memory ? plan.peak_bytes() : plan.device.peak_total()) - limits_.device_bytes;
  }

  // The lowest level of offload that fits into device memory, by interpolation between levels that do and do not.
  // `lacks`: the bytes that a level lacks.
  static std::optional<size_t> least_level(const Family& family, const std::function<int64_t(size_t level)>& lacks) {
    size_t low = 0, high = family.levels.size() - 1;
    int64_t low_lacks = lacks(low);
    if (low_lacks <= 0) return low;
    int64_t high_lacks = lacks(high);
    if (high_lacks > 0) return {};
    for (bool halves = false; high - low > 1; halves = !halves) {
      const double share = halves ? 0.5 : static_cast<double>(low_lacks) / static_cast<double>(low_lacks - high_lacks);
      const auto step = static_cast<size_t>(std::ceil(share * static_cast<double>(high - low)));
      const size_t middle = std::clamp(low + step, low + 1, high - 1);
      const int64_t middle_lacks = lacks(middle);
      (middle_lacks > 0 ? low : high) = middle;
      (middle_lacks > 0 ? low_lacks : high_lacks) = middle_lacks;
    }
    return high;
  }

  // The fastest member with this recomputation that fits; nothing if none does.
  std::optional<Settings> fastest_with(const Family& family, size_t recomputation) {
    std::optional<Settings> fastest;
    const auto consider = [&](std::optional<size_t> level) {
      if (!level) return;
      Settings member = family.member(recomputation, *level);
      if (!excess(member).fits() || (fastest && weighed_s(member) >= weighed_s(*fastest))) return;
      fastest = std::move(member);
    };
    consider(
        least_level(family, [&](size_t level) { return device_excess(plan_of(family.member(recomputation, level))); }));
    if (fused_plan_of(family.member(recomputation, 0))) {  // more offload, for larger batches
      consider(least_level(
          family, [&](size_t level) { return device_excess(*fused_plan_of(family.member(recomputation, level))); }));
    }
    return fastest;
  }

  // The time of the fastest member first falls and then rises with the recomputation: it replaces offload, which costs
  // more the more there is. Members with little recomputation may not fit at all.
  std::optional<Configuration> best_of(const Family& family) {
    std::map<size_t, std::pair<double, std::optional<Settings>>> tried;
    constexpr double kNever = std::numeric_limits<double>::infinity();
    const auto seconds = [&](size_t recomputation) {
      const auto [at, is_new] = tried.try_emplace(recomputation);
      if (is_new) {
        auto member = fastest_with(family, recomputation);
        at->second = {member ? weighed_s(*member) : kNever, std::move(member)};
      }
      return at->second.first;
    };
    size_t low = 0, high = family.recomputations.size() - 1;
    const bool any = seconds(high) < kNever;
    if (!any && seconds(low) == kNever) return {};  // the host or the disk is too small
    // Nothing is faster than the member that moves and recomputes nothing.
    const Settings whole = family.member(0, 0);
    const bool all_fits = device_excess(plan_of(whole)) <= 0 && (!fused_plan_of(whole) || fuses(whole));
    while (!all_fits && high - low > 2) {
      const size_t a = low + (high - low) / 3, b = high - (high - low) / 3;
      (seconds(a) == kNever || seconds(a) > seconds(b) ? low : high) =
          seconds(a) == kNever || seconds(a) > seconds(b) ? a : b;
    }
    for (size_t r = low; !all_fits && r <= high; ++r) seconds(r);
    seconds(0);
    const auto best = std::ranges::min_element(tried, {}, [](const auto& entry) { return entry.second.first; });
    if (!best->second.second) return {};
    const Settings& member = *best->second.second;
    return Configuration{member, run_plan_of(member), excess(member)};
  }

  const FitRequest& request_;
  const std::vector<Family> families_;
  MemoryLimits limits_;
  std::map<std::string, Plan> plans_;
  std::map<std::string, std::optional<Plan>> fused_plans_;
  std::map<std::pair<std::string, bool>, StepTime> times_;
};

}  // namespace

bool has_automatic(const Settings& settings) {
  return settings.offload.has_automatic() || settings.activation_checkpointing.automatic;
}

bool has_search(const Settings& settings) {
  return settings.fit != 0 || has_automatic(settings);
}

Configuration plan_configuration(const FitRequest& request, const Settings& settings) {
  PlannedRank rank = request.rank;
  rank.rank = 0;
  Configuration c{settings, plan_training(request.config, settings, request.work_of(settings), rank), {}};
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
  Search search(request);
  FitResult result;
  std::vector<Configuration> found = search.best_members(request.limits);
  if (found.empty()) {
    result.smallest = search.smallest();
  } else {
    result.best = std::move(found.front());
    found.erase(found.begin());
    // Only what a reader would compare.
    constexpr size_t kMost = 3;
    constexpr double kSlowest = 3;  // compared with the best
    std::erase_if(found, [&](const Configuration& c) { return c.time.step_s > kSlowest * result.best->time.step_s; });
    if (found.size() > kMost) found.erase(found.begin() + kMost, found.end());
    result.runners_up = std::move(found);
    const auto& best = result.best;
    const bool is_limited = best->settings.offload.any() || best->settings.activation_checkpointing.any() ||
                            best->settings.grad_accum > 1 || request.rank.world_size > 1;
    if (is_limited && request.limits.device_bytes < MemoryLimits{}.device_bytes) {
      MemoryLimits more = request.limits;
      more.device_bytes += int64_t{1} << 30;
      std::vector<Configuration> faster = search.best_members(more);
      constexpr double kFaster = 0.999;
      if (!faster.empty() && faster.front().time.step_s < kFaster * best->time.step_s) {
        result.with_next_gib = std::move(faster.front());
      }
    }
  }
  result.num_plans = search.num_plans();
  result.num_simulations = search.num_simulations();
  return result;
}

}  // namespace tessera
