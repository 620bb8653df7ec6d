#include "tessera/comm/collective_watch.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <future>

#include "manual_stream.h"

namespace tessera {
namespace {

struct Pending : testing::Test {
  void collective(const char* what, ManualStream& stream) {
    pending.begin("all_gather", what, stream);
    stream.put();
    pending.called(stream);
  }
  // Calls PendingCollectives::look() with a clock that is `seconds` after the start. Example of a result:
  // "all_gather of a: 3" if the all_gather of "a" runs, and look() first saw it running 3 seconds before. Returns an
  // empty text if no collective runs.
  std::string look(double seconds) {
    const auto passed = [](double s) {
      return std::chrono::duration_cast<PendingCollectives::Clock::duration>(std::chrono::duration<double>(s));
    };
    std::vector<PendingCollectives::Entry> done;
    const auto running = pending.look(start + passed(seconds), done);
    if (!running) return "";
    return running->call + ": " +
           std::to_string(std::chrono::duration_cast<std::chrono::seconds>(running->time).count());
  }

  const PendingCollectives::Clock::time_point start{};
  PendingCollectives pending;
  ManualStream stream, other;
};

TEST_F(Pending, TimeRunsWhileTheStreamIsInTheCollective) {
  collective("a", stream);
  collective("b", stream);
  EXPECT_EQ(look(1), "all_gather of a: 0");
  EXPECT_EQ(look(4), "all_gather of a: 3");
  stream.finish();
  EXPECT_EQ(look(5), "");
  collective("c", stream);
  EXPECT_EQ(look(9), "all_gather of c: 0") << "its time starts when look() first sees it run";
}

TEST_F(Pending, WorkBeforeACollectiveIsNotItsTime) {
  stream.put();  // other work of this rank, which delays the collective
  collective("a", stream);
  EXPECT_EQ(look(1), "");
  EXPECT_EQ(look(100), "");
}

TEST_F(Pending, EachStreamHasItsOwnCollectives) {
  stream.put();
  collective("a", stream);
  collective("b", other);
  EXPECT_EQ(look(1), "all_gather of b: 0");
  stream.finish();
  other.finish();
  collective("c", stream);
  EXPECT_EQ(look(3), "all_gather of c: 0");
}

TEST_F(Pending, ACallThatDoesNotReturnRuns) {
  pending.begin("all_reduce", "gradients", stream);
  stream.finish();
  EXPECT_EQ(look(0), "all_reduce of gradients: 0");
  EXPECT_EQ(look(7), "all_reduce of gradients: 7");
  pending.called(stream);
  EXPECT_EQ(look(8), "");
}

struct Watch : testing::Test {
  WatchOptions options(double timeout_s) {
    return {.rank = 1, .timeout_s = timeout_s, .board = board.get(), .fail = [this](const CommunicationError& error) {
              if (!failed.exchange(true)) failure.set_value(error.what());  // in a run, fail() ends the process
            }};
  }

  std::atomic<bool> failed = false;
  std::promise<std::string> failure;
  std::unique_ptr<StatusBoard> board = StatusBoard::create(2);
  std::string library_error;
  ManualStream stream;
};

TEST_F(Watch, ACollectiveThatDoesNotEndIsReported) {
  CollectiveWatch watch(options(0.01), [] { return std::string(); });
  watch.begin("reduce_scatter", "gradients of h.3", stream);
  stream.put();
  watch.called(stream);
  EXPECT_EQ(failure.get_future().get(),
            "rank 1: reduce_scatter of gradients of h.3: waited 0.01 s for the other ranks of its group. If the other "
            "ranks are only slow, give a longer comm_timeout");
  EXPECT_EQ(board->waiting(), "Rank 1 waited in reduce_scatter of gradients of h.3.");
}

TEST_F(Watch, TheWatchDoesNotWaitForADeviceThatDoesNotAnswer) {
  std::promise<void> answer;
  CollectiveWatch watch(options(0.01),
                        [answered = answer.get_future().share()] { return answered.wait(), std::string(); });
  watch.begin("all_reduce", "gradients of h.3", stream);
  EXPECT_EQ(failure.get_future().get(),
            "rank 1: all_reduce of gradients of h.3: waited 0.01 s for the other ranks of its group. If the other "
            "ranks are only slow, give a longer comm_timeout");
  answer.set_value();
}

TEST_F(Watch, TheLibrarysErrorIsReportedAtOnce) {
  CollectiveWatch watch(options(1e6), [] { return std::string("NCCL has failed: remote process exited"); });
  EXPECT_EQ(failure.get_future().get(),
            "rank 1: NCCL has failed: remote process exited. Set NCCL_DEBUG=INFO to see details");
}

TEST_F(Watch, TheLibrarysErrorIsReportedWithTheLastCollective) {
  std::atomic<bool> failed = false;
  CollectiveWatch watch(options(1e6), [&] { return failed ? std::string("NCCL has failed") : std::string(); });
  watch.begin("all_gather", "parameters of h.3", stream);
  stream.put();
  watch.called(stream);
  stream.finish();
  failed = true;
  EXPECT_THAT(failure.get_future().get(),
              testing::MatchesRegex("rank 1: (after )?all_gather of parameters of h.3: NCCL has failed. .*"));
}

TEST_F(Watch, CollectivesThatEndAreForgotten) {
  std::atomic<int> looks = 0;
  CollectiveWatch watch(options(0.2), [&] { return ++looks, std::string(); });
  watch.begin("all_gather", "parameters of h.3", stream);
  stream.put();
  watch.called(stream);
  stream.finish();
  while (looks < 25) std::this_thread::yield();  // 25 looks, one per 10 ms, take longer than the limit of 0.2 s
  EXPECT_EQ(board->waiting(), "");
  EXPECT_EQ(failure.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

TEST_F(Watch, AFailureOfTheDeviceIsNotReported) {
  std::atomic<int> looks = 0;
  {
    CollectiveWatch watch(options(0.01), [&]() -> std::string {
      ++looks;
      throw RunError("CUDA", "an illegal memory access was encountered");
    });
    while (looks == 0) std::this_thread::yield();
  }
  EXPECT_EQ(looks, 1) << "after an error of the device, the watch does not ask again";
  EXPECT_EQ(failure.get_future().wait_for(std::chrono::seconds(0)), std::future_status::timeout);
}

}  // namespace
}  // namespace tessera
