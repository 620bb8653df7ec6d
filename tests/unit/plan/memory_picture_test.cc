#include "tessera/plan/memory_picture.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tessera/base/text.h"

namespace tessera {
namespace {

using testing::AllOf;
using testing::HasSubstr;
using testing::Not;

constexpr int64_t kMiB = 1 << 20;

// The stack has these heights, one after the other. The device has 10 MiB of parameters and 8 MiB of activations.
PlanReport report_of(std::vector<int64_t> stack_mib) {
  PlanReport report;
  report.settings.model = "a<model>";
  report.rank.device = DeviceKind::cuda;
  StepMemory memory;
  memory.timed = true;
  memory.parts = {{0, StepPart::forward}, {0.4, StepPart::backward}, {0.9, StepPart::update}};
  memory.end = 0.99;
  for (size_t i = 0; i < stack_mib.size(); ++i) {
    StepMemory::Point point{.at = static_cast<double>(i) / static_cast<double>(stack_mib.size()),
                            .device = {},
                            .host = {},
                            .stack_bytes = stack_mib[i] * kMiB};
    point.device[static_cast<size_t>(Category::parameters)] = 10 * kMiB;
    point.device[static_cast<size_t>(Category::activations)] = 8 * kMiB;
    memory.points.push_back(point);
  }
  report.machine.emplace();
  report.machine->name = "a & b";
  report.step_memory = std::move(memory);
  return report;
}

TEST(MemoryPicture, ShowsCategoriesAndTheLimit) {
  PlanReport report = report_of({0, 3, 7, 2, 0});
  std::string svg = memory_picture(report);
  EXPECT_THAT(svg, AllOf(HasSubstr("GPU: 18.0 MiB<"), HasSubstr("parameters  10.0 MiB"),
                         HasSubstr("activations  7.00 MiB"), HasSubstr(">free for activations<"),
                         HasSubstr("a&lt;model&gt;"), HasSubstr("a &amp; b"), HasSubstr(">forward<"),
                         HasSubstr(">backward<"), HasSubstr("milliseconds"), HasSubstr("prefers-color-scheme:dark")));
  EXPECT_THAT(svg, AllOf(Not(HasSubstr("limit</text>")), Not(HasSubstr("Host: ")), Not(HasSubstr("nan"))));
  report.limits.device_bytes = 16 * kMiB;
  svg = memory_picture(report);
  EXPECT_THAT(svg, AllOf(HasSubstr("GPU: 18.0 MiB, limit 16.0 MiB"), HasSubstr("limit</text>")));
  report.limits.device_bytes = 999 * kMiB;  // far above the picture
  EXPECT_THAT(memory_picture(report), AllOf(HasSubstr("limit 999 MiB"), Not(HasSubstr("limit</text>"))));
}

TEST(MemoryPicture, ShowsTheHostIfItHoldsSomething) {
  PlanReport report = report_of({0, 3, 7, 2, 0});
  for (auto& point : report.step_memory->points) {
    point.host[static_cast<size_t>(Category::optimizer)] = 40 * kMiB;
    point.host[static_cast<size_t>(Category::batch)] = kMiB;
  }
  report.limits.host_bytes = 64 * kMiB;
  const std::string svg = memory_picture(report);
  EXPECT_THAT(svg, AllOf(HasSubstr("Host: 41.0 MiB, limit 64.0 MiB"), HasSubstr("optimizer  40.0 MiB"),
                         HasSubstr("batch  1.00 MiB")));
}

TEST(MemoryPicture, ManyPointsKeepTheirPeak) {
  std::vector<int64_t> stack(100'000, 1);
  stack[54'321] = 7;
  const std::string svg = memory_picture(report_of(stack));
  EXPECT_LT(svg.size(), 60'000u);
  EXPECT_THAT(svg, HasSubstr("activations  7.00 MiB"));
}

TEST(MemoryPicture, WithoutAMachineItShowsAnOrder) {
  PlanReport report = report_of({0, 3, 7, 2, 0});
  report.machine.reset();
  report.step_memory->timed = false;
  EXPECT_THAT(memory_picture(report), AllOf(HasSubstr("in their order"), Not(HasSubstr("seconds"))));
}

}  // namespace
}  // namespace tessera
