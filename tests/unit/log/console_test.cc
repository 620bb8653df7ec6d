#include "tessera/log/console.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

#include "screen.h"

namespace tessera {
namespace {

using ::testing::ElementsAre;

TEST(Terminal, IsDescribedByTheEnvironment) {
  const auto flags = [](bool is_tty, std::map<std::string, std::string> variables) {
    const Terminal terminal = describe_terminal(is_tty, environment(std::move(variables)));
    return std::string(terminal.interactive ? "i" : "-") + (terminal.color ? "c" : "-") +
           (terminal.unicode ? "u" : "-");
  };
  EXPECT_EQ(flags(true, {{"TERM", "xterm"}, {"LANG", "en_US.UTF-8"}}), "icu");
  EXPECT_EQ(flags(false, {{"TERM", "xterm"}, {"LANG", "en_US.UTF-8"}}), "---");
  EXPECT_EQ(flags(true, {{"TERM", "dumb"}, {"LANG", "en_US.UTF-8"}}), "---");
  EXPECT_EQ(flags(true, {{"LANG", "en_US.UTF-8"}}), "---");
  EXPECT_EQ(flags(true, {{"TERM", "xterm"}, {"LANG", "C"}}), "ic-");
  EXPECT_EQ(flags(true, {{"TERM", "xterm"}}), "ic-");
  EXPECT_EQ(flags(true, {{"TERM", "xterm"}, {"LC_ALL", "C"}, {"LANG", "en_US.UTF-8"}}), "ic-");
  EXPECT_EQ(flags(true, {{"TERM", "xterm"}, {"LC_ALL", ""}, {"LC_CTYPE", "C.utf8"}, {"LANG", "C"}}), "icu");
  EXPECT_EQ(flags(true, {{"TERM", "xterm"}, {"NO_COLOR", "1"}, {"LANG", "C.UTF-8"}}), "i-u");
  EXPECT_EQ(flags(true, {{"TERM", "xterm"}, {"NO_COLOR", ""}, {"LANG", "C.UTF-8"}}), "icu");
}

TEST(Console, PrintsAboveTheStatusLine) {
  Screen screen;  // stdout and stderr write to the same screen
  Console console(screen.output(kPlainTerminal), screen.output(kPlainTerminal));
  console.show_status("working on it");
  console.print("result");
  EXPECT_THAT(screen.lines(), ElementsAre("result", "working on it"));
  console.show_status("done");  // shorter than before: nothing of the old line remains
  console.note("one\ntwo");
  EXPECT_THAT(screen.lines(), ElementsAre("result", "one", "two", "done"));
  console.clear_status();
  EXPECT_THAT(screen.lines(), ElementsAre("result", "one", "two", ""));
  console.print("last");
  EXPECT_THAT(screen.lines(), ElementsAre("result", "one", "two", "last", ""));
}

TEST(Console, WritesPlainLinesToFiles) {
  Screen out, err;
  Console console(out.output({}), err.output({}));
  console.show_status("never seen");
  console.print("result");
  console.note("message");
  console.clear_status();
  EXPECT_EQ(out.raw(), "result\n");
  EXPECT_EQ(err.raw(), "message\n");
}

TEST(Console, MutedIgnoresAllOutput) {
  Console console = Console::muted();
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  console.print("a");
  console.note("b");
  console.show_status("c");
  EXPECT_EQ(testing::internal::GetCapturedStdout() + testing::internal::GetCapturedStderr(), "");
}

TEST(Console, OfProcessWritesToItsStreams) {
  testing::internal::CaptureStdout();
  testing::internal::CaptureStderr();
  Console console = Console::of_process();  // stdout and stderr are files now
  console.print("result");
  console.note("message");
  console.show_status("bar");
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "result\n");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "message\n");
}

TEST(Console, ThreadsNeverMixLines) {
  Screen screen;
  Console console(screen.output(kPlainTerminal), screen.output(kPlainTerminal));
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&, line = std::string(20, static_cast<char>('a' + i))] {
      for (int k = 0; k < 50; ++k) {
        console.show_status(line);
        console.note(line);
      }
    });
  }
  for (auto& thread : threads) thread.join();
  ASSERT_EQ(screen.lines().size(), 201u);  // 4 · 50 notes, and the status line
  for (const std::string& line : screen.lines()) EXPECT_EQ(line, std::string(20, line.at(0)));
}

}  // namespace
}  // namespace tessera
