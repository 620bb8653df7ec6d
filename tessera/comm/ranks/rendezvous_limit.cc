#include "tessera/comm/ranks/rendezvous_limit.h"

#include <fmt/format.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "tessera/base/option_names.h"

namespace tessera {
namespace {

// Added to --comm-timeout, because processes also need time to start and end.
constexpr double kSlack_s = 5;

[[noreturn]] void give_up(const char* what, int rank, const WorldOptions& options, StatusBoard* board) {
  const bool has_launcher = !options.board.empty();
  std::string text =
      fmt::format("rank {}: not all ranks have {} within {} s.", rank, what, options.timeout_s + kSlack_s);
  if (board) {
    if (has_launcher) {  // without a launcher (--nproc), the board covers only this node
      for (const int other : board->absent()) text += fmt::format(" Rank {} has not started.", other);
    }
    const std::string others = board->not_waiting();
    if (!others.empty()) text += " " + others;
    board->fail(rank, ExitCode::kCommunication, text);
  } else {
    text += " A rank is missing or stopped. If ranks start slowly, give a longer " + option("comm_timeout");
  }
  if (!has_launcher) {
    // mpirun and srun end all ranks when one rank ends. Therefore one rank reports first, and ends. The other ranks
    // wait before they end, because their end would cut off this report. Without a board, they then also report,
    // because rank 0 may be missing.
    const bool is_first = board ? board->claim_report() : rank == 0;
    if (!is_first) std::this_thread::sleep_for(std::chrono::seconds(1));
    if ((is_first || !board) && options.report) options.report(text);
  }
  std::_Exit(static_cast<int>(ExitCode::kCommunication));
}

}  // namespace

RendezvousLimit::RendezvousLimit(const char* what, int rank, const WorldOptions& options, StatusBoard* board)
    : waiting_(board, rank, fmt::format("a call until all ranks have {}", what)),
      limit_(options.timeout_s + kSlack_s, [=, &options] { give_up(what, rank, options, board); }) {}

}  // namespace tessera
