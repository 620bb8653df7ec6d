// A program for tests of the launcher: Tessera's command line with other verbs.
#include <fmt/format.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <new>
#include <thread>

#include "tessera/app/command_line.h"
#include "tessera/app/machine.h"
#include "tessera/base/error.h"
#include "tessera/base/host_resources.h"
#include "tessera/launch/surroundings.h"
#include "tessera/log/console.h"

namespace tessera {
namespace {

void sleep_ms(int time) {
  std::this_thread::sleep_for(std::chrono::milliseconds(time));
}

// Rank 0 prints the numbers of all ranks, how many ranks its node has, its number of threads, the environment variable
// VALUE and the setting `prompt`. It also prints whether its standard input is empty, and whether its standard error is
// a terminal.
int say(const Invocation& invocation) {
  World& world = *invocation.world;
  const auto ranks = world.communicator().all_gather_text(std::to_string(world.rank()), "ranks");
  std::string text;
  for (const auto& rank : ranks) text += rank + " ";
  if (world.rank() > 0) return 0;
  Console console = Console::of_process();
  console.print(fmt::format("ranks {}of {}, {} local, {} threads, stdin {}, VALUE {}, prompt {}", text, world.size(),
                            world.local_size(), threads_to_use(0, world.ranks_on_these_cores()),
                            std::getchar() == EOF ? "empty" : "read", std::getenv("VALUE") ? std::getenv("VALUE") : "",
                            invocation.settings().prompt));
  console.note(console.err_terminal().interactive ? "on a terminal" : "on no terminal");
  return 0;
}

// Runs ten steps of collectives. `--prompt ACTION` selects a failure. Most failures happen on the last rank, in the
// third step.
int misbehave(const Invocation& invocation) {
  World& world = *invocation.world;
  const std::string action = invocation.settings().prompt;
  // The other ranks call make_communicator(), and wait there.
  if (action == "stop-at-start" && world.rank() == world.size() - 1) raise(SIGSTOP);
  if (action == "stop-at-end") {
    if (world.rank() < world.size() - 1) return 0;
    world.communicator().barrier("the end of the run");
    raise(SIGSTOP);
  }
  ThreadPool pool(1);
  const auto device = make_cpu_device(pool);
  const auto group = world.make_communicator(*device);
  const auto stream = device->make_stream();
  std::vector<float> x(1000);
  world.enter_phase("step");
  if (action == "sleep") {
    if (world.rank() == 0) Console::of_process().print("asleep");
    for (;;) sleep_ms(20);
  }
  for (int step = 0; step < 10; ++step) {
    if (step == 2 && action == "kill-alone") {  // the other ranks are not in a collective
      if (world.rank() == world.size() - 1) raise(SIGKILL);
      for (;;) sleep_ms(20);
    }
    if (step == 2 && world.rank() == world.size() - 1) {
      if (action == "kill") raise(SIGKILL);
      if (action == "stop") raise(SIGSTOP);
      if (action == "segv") {
        std::signal(SIGSEGV, SIG_DFL);  // otherwise a sanitizer would print its own report
        raise(SIGSEGV);
      }
      if (action == "throw") throw RunError("disk", "is full", "Make room");
      if (action == "memory") throw std::bad_alloc();
      if (action == "input") throw InputError("model.safetensors", "is cut");
      if (action == "watch") {  // as on a GPU: another thread reports the failure, and this thread waits forever
        std::thread([&] {
          world.fail(ExitCode::kCommunication, "all_gather of parameters of h.4: waited 7 s", {});
        }).join();
      }
      if (action == "other") group->broadcast(view_of(x.data(), {5}), 0, *stream, "parameters of h.4");
    }
    if (step == 2 && action == "all") throw InputError("model.safetensors", "is cut");
    group->all_reduce(view_of(x.data(), {1000}), *stream, "gradients of h.3");
    stream->synchronize();
  }
  return 0;
}

// Works until a rank receives a signal. Then all ranks return 75. With `--prompt forever`, they continue to run
// instead.
int work(const Invocation& invocation) {
  World& world = *invocation.world;
  invocation.signals->end_start();
  if (world.rank() == 0) Console::of_process().print("at work");
  while (world.communicator().sum({static_cast<double>(invocation.signals->received() != 0)}, "signals")[0] == 0)
    sleep_ms(20);
  if (invocation.settings().prompt == "forever") {
    if (world.rank() == 0) Console::of_process().print("signal received");
    for (;;) sleep_ms(20);
  }
  return static_cast<int>(ExitCode::kSavedAfterSignal);
}

// With `--prompt N`, rank 0 kills itself in each of the first N starts. A file in the output folder counts the starts.
// Each start also writes an empty file checkpoint-S, where S is the number of the start, from 1.
int recover(const Invocation& invocation) {
  World& world = *invocation.world;
  const Settings& settings = invocation.settings();
  world.communicator().barrier("the start");
  if (world.rank() > 0) {
    world.communicator().barrier("the end");
    return 0;
  }
  const std::string path = settings.output_dir + "/starts";
  int starts = 0;
  std::ifstream(path) >> starts;
  std::ofstream(path) << ++starts;
  std::ofstream(settings.output_dir + "/checkpoint-" + std::to_string(starts)) << "";
  if (starts <= std::atoi(settings.prompt.c_str())) raise(SIGKILL);
  world.communicator().barrier("the end");
  Console::of_process().print(fmt::format("start {}, resume {}", starts, settings.resume));
  return 0;
}

const std::vector<Verb>& verbs() {
  constexpr Groups groups = kRanks | kPrompt | kOutputDir | kCheckpoints;
  static const std::vector<Verb> all = {
      {.name = "say", .help = "", .groups = groups, .required = {}, .run = say, .runs_as_ranks = true},
      {.name = "misbehave", .help = "", .groups = groups, .required = {}, .run = misbehave, .runs_as_ranks = true},
      {.name = "work",
       .help = "",
       .groups = groups,
       .required = {},
       .run = work,
       .runs_as_ranks = true,
       .stops_on_signals = true},
      {.name = "recover", .help = "", .groups = groups, .required = {}, .run = recover, .runs_as_ranks = true},
  };
  return all;
}

}  // namespace
}  // namespace tessera

int main(int argc, char** argv) {
  tessera::prepare_process();
  return tessera::guarded_run({argv + 1, argv + argc}, tessera::environment_of_process(), tessera::verbs());
}
