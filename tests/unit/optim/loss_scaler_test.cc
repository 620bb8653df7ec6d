#include "tessera/optim/loss_scaler.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace tessera {
namespace {

// Returns the scale before each step and after the last step. In `steps`, 'x' is a step with overflow, and '.' is a
// step without overflow.
std::vector<double> scales(LossScaler& scaler, const std::string& steps) {
  std::vector<double> result = {scaler.scale()};
  for (const char step : steps) {
    scaler.update(step == 'x');
    result.push_back(scaler.scale());
  }
  return result;
}

using Scales = std::vector<double>;

TEST(GradScaler, DoublesAfterAWindowAndHalvesAtEveryOverflow) {
  LossScaler scaler({.initial_scale = 8, .window = 2});
  EXPECT_EQ(scales(scaler, "....x.xx.."), (Scales{8, 8, 16, 16, 32, 16, 16, 8, 4, 4, 8}));
}

TEST(GradScaler, HasNoLowerLimitAndTheUpperLimitOfFp32) {
  LossScaler low({.initial_scale = 1, .window = 2});
  EXPECT_EQ(scales(low, "xxx"), (Scales{1, 0.5, 0.25, 0.125}));
  LossScaler high({.initial_scale = 0x1p126, .window = 1});
  EXPECT_EQ(scales(high, "..."), (Scales{0x1p126, 0x1p127, 0x1p127, 0x1p127}));
}

TEST(DeepSpeed, FirstDoublesOneStepAfterTheWindow) {
  // DeepSpeed's DynamicLossScaler starts with last_overflow_iter = -1. Iterations are numbered from 0. At iteration i,
  // the scaler has counted i - (-1) - 1 = i stable steps. The scale doubles when this number is a positive multiple of
  // the window: at iterations 2 and 4. After the overflow at iteration 5, the number is i - 5 - 1, so the scale doubles
  // at iterations 8 and 10.
  LossScaler scaler({.rules = LossScaleRules::deepspeed, .initial_scale = 8, .window = 2});
  EXPECT_EQ(scales(scaler, ".....x....."), (Scales{8, 8, 8, 16, 16, 32, 16, 16, 16, 32, 32, 64}));
}

TEST(DeepSpeed, HysteresisIsConsumedOnceAndRestoredOnlyByGrowth) {
  LossScaler scaler({.rules = LossScaleRules::deepspeed, .initial_scale = 64, .window = 2, .hysteresis = 2});
  // The first overflow is only counted. Each later overflow halves the scale, even if steps without overflow come
  // between them. After the scale has doubled, the next overflow is again only counted.
  EXPECT_EQ(scales(scaler, "xx.x"), (Scales{64, 64, 32, 32, 16}));
  EXPECT_EQ(scaler.state().hysteresis_left, 1);
  EXPECT_EQ(scales(scaler, "..."), (Scales{16, 16, 16, 32}));
  EXPECT_EQ(scaler.state().hysteresis_left, 2);
  EXPECT_EQ(scales(scaler, "xx"), (Scales{32, 32, 16}));
}

// Returns the result of update() for each step: 'n' is none, 's' searched, 't' stuck, 'e' exhausted.
std::string overflows(LossScaler scaler, const std::string& steps) {
  std::string result;
  for (const char step : steps) result += "nste"[static_cast<int>(scaler.update(step == 'x'))];
  return result;
}

// An overflow is 'searched' if the scale is above min_scale (1), or if hysteresis prevents the halving at this
// overflow. Otherwise, it is 'stuck' under GradScaler's rules and 'exhausted' under DeepSpeed's rules. With a fixed
// scale, every overflow is 'stuck'.
TEST(LossScaler, AnOverflowIsSearchedWhileTheScaleCanFall) {
  constexpr auto kDeepSpeed = LossScaleRules::deepspeed;
  EXPECT_EQ(overflows(LossScaler({.initial_scale = 4, .window = 2}), "x.xxx..xx"), "snsttnntt");
  EXPECT_EQ(overflows(LossScaler({.initial_scale = 4, .window = 1}), "xxx..xx"), "sstnnst");
  EXPECT_EQ(overflows(LossScaler({.rules = kDeepSpeed, .initial_scale = 3, .window = 10}), "x.xx"), "snse");
  EXPECT_EQ(overflows(LossScaler({.rules = kDeepSpeed, .initial_scale = 1, .window = 10, .hysteresis = 2}), "x.x"),
            "sne");
  for (const LossScaleRules rules : {LossScaleRules::grad_scaler, kDeepSpeed}) {
    EXPECT_EQ(overflows(LossScaler({.rules = rules, .fixed_scale = 128}), "x.xx"), "tntt");
  }
}

TEST(LossScaler, AFixedScaleStays) {
  for (const LossScaleRules rules : {LossScaleRules::grad_scaler, LossScaleRules::deepspeed}) {
    LossScaler scaler({.rules = rules, .fixed_scale = 128, .window = 1});
    EXPECT_EQ(scales(scaler, "x..x"), Scales(5, 128.0));
  }
}

TEST(LossScaler, ContinuesFromASavedState) {
  for (const LossScaleRules rules : {LossScaleRules::grad_scaler, LossScaleRules::deepspeed}) {
    const LossScaleOptions options{.rules = rules, .initial_scale = 1024, .window = 3, .hysteresis = 3};
    const std::string steps = "..x....xx.x......x...";
    for (size_t cut = 0; cut <= steps.size(); ++cut) {
      LossScaler complete(options), first(options), second(options);
      scales(complete, steps);
      scales(first, steps.substr(0, cut));
      second.restore(first.state());
      scales(second, steps.substr(cut));
      EXPECT_EQ(second.state(), complete.state()) << cut;
    }
  }
}

}  // namespace
}  // namespace tessera
