// Declares the settings of the learning rate over time.
#include "tessera/settings/declarations/declaring.h"

namespace tessera::declaring {

namespace {

Setting lr_schedule() {
  Setting setting =
      choice("lr_schedule", &S::lr_schedule, recorded(Resume::new_folder, kOptimization),
             {{"linear", Schedule::linear},
              {"constant", Schedule::constant},
              {"cosine", Schedule::cosine},
              {"cosine_with_min_lr", Schedule::cosine_with_min_lr},
              {"cosine_with_restarts", Schedule::cosine_with_restarts},
              {"polynomial", Schedule::polynomial},
              {"inverse_sqrt", Schedule::inverse_sqrt},
              {"warmup_stable_decay", Schedule::warmup_stable_decay}},
             "How the learning rate changes after the warm-up, as in the Trainer. constant_with_warmup is "
             "constant, because every schedule has the warm-up of --warmup-steps",
             {"lr_scheduler_type", "lr_scheduler"});
  const char* const fixed = "The rate of a step must not depend on results. Use warmup_stable_decay, or cosine";
  return with_words(std::move(setting), {{"constant_with_warmup", "constant"}},
                    {{"reduce_lr_on_plateau", fixed},
                     {"greedy", fixed},
                     {"cosine_warmup_with_min_lr", "Use cosine_with_min_lr: the same curve, but one step later"},
                     {"piecewise_constant", "Use warmup_stable_decay, or constant"}});
}

}  // namespace

std::vector<Setting> schedule_settings() {
  Setting decay_type =
      choice("decay_type", &S::decay_type, recorded(Resume::new_folder, kOptimization),
             {{"cosine", Decay::cosine}, {"linear", Decay::linear}, {"1_sqrt", Decay::one_minus_sqrt}},
             "warmup_stable_decay: how the rate falls in the decay; 1_sqrt: 1 minus the square root of the progress");
  std::vector<Setting> all{
      lr_schedule(),
      steps("warmup_steps", &S::warmup_steps, recorded(Resume::new_folder, kOptimization),
            "Warm-up: number of steps during which the learning rate rises, or a fraction of all steps"),
      real("warmup_ratio", &S::warmup_ratio, recorded(Resume::new_folder, kOptimization), "FRACTION", kUnitInterval,
           "Warm-up as a fraction of all steps, instead of --warmup-steps"),
      choice("warmup_type", &S::warmup_type, recorded(Resume::new_folder, kOptimization),
             {{"linear", Warmup::linear}, {"log", Warmup::log}},
             "How the learning rate rises in the warm-up: linearly, or with the logarithm of the step"),
      real("warmup_min_lr", &S::warmup_min_lr, recorded(Resume::new_folder, kOptimization), "RATE", kNonNegativeReal,
           "Lowest learning rate: at the start of the warm-up, and, without --min-lr, at the end of a schedule that "
           "decays"),
      real("min_lr", &S::min_lr, recorded(Resume::new_folder, kOptimization), "RATE", kNonNegativeReal,
           "Learning rate at the end of a schedule that decays; 0: --warmup-min-lr. polynomial without this setting: "
           "1e-7. warmup_stable_decay also begins the warm-up with this rate",
           {"lr_end"}),
      for_others(real("min_lr_rate", &S::min_lr_rate, kOptimization, "FRACTION", kUnitInterval,
                      "Sets --min-lr to this fraction of --lr", {"min_lr_ratio"})),
      integer("lr_decay_steps", &S::lr_decay_steps, recorded(Resume::new_folder, kOptimization), "STEPS", kCount,
              "Step at which the learning rate has fallen to its lowest value; 0: the last step"),
      real("lr_num_cycles", &S::lr_num_cycles, recorded(Resume::new_folder, kOptimization), "N", kNonNegativeReal,
           "Number of waves of a cosine schedule, or of falls of cosine_with_restarts; 0: the Trainer's default, 0.5 "
           "waves or 1 fall"),
      real("lr_power", &S::lr_power, recorded(Resume::new_folder, kOptimization), "X", kNonNegativeReal,
           "polynomial: exponent of the decay"),
      integer("lr_timescale", &S::lr_timescale, recorded(Resume::new_folder, kOptimization), "STEPS", kCount,
              "inverse_sqrt: the rate has fallen to 71 % this number of steps after the warm-up; 0: the length of the "
              "warm-up, or 10000 without a warm-up"),
      steps("num_decay_steps", &S::num_decay_steps, recorded(Resume::new_folder, kOptimization),
            "warmup_stable_decay: number of steps of the decay at the end, or a fraction of all steps"),
      std::move(decay_type),
  };
  return all;
}

}  // namespace tessera::declaring
