#include "tessera/store/all_ranks.h"

#include <fmt/format.h>

#include "tessera/base/error.h"
#include "tessera/store/damage.h"

namespace tessera {

namespace {

// Each rank sends a text to all ranks. If `work` returns, the text is "+" and the result of `work`. If `work` throws a
// DamageError, the text is "!" and the error message. For any other error, the text is one character and the error
// message. The code of this character is the code of "0" plus the exit code.
constexpr char kSucceeded = '+', kDamage = '!';

std::string outcome_of(const std::function<std::string()>& work) {
  try {
    return kSucceeded + work();
  } catch (const DamageError& error) {
    return kDamage + std::string(error.what());
  } catch (...) {
    const Failure failure = current_failure();
    return static_cast<char>('0' + static_cast<int>(failure.code)) + failure.text;
  }
}

[[noreturn]] void throw_failure(int rank, const std::string& outcome) {
  const std::string where = fmt::format("rank {}", rank), what = outcome.substr(1);
  if (outcome[0] == kDamage) throw DamageError(where, what);
  switch (static_cast<ExitCode>(outcome[0] - '0')) {
    case ExitCode::kUsage:
      throw UsageError(where, what, "");
    case ExitCode::kBadInput:
      throw InputError(where, what);
    case ExitCode::kOutOfMemory:
      throw OutOfMemoryError(where, what);
    case ExitCode::kCommunication:
      throw CommunicationError(where, what);
    default:
      throw RunError(where, what);
  }
}

}  // namespace

std::vector<std::string> on_all_ranks(Communicator& world, const char* what, const std::function<std::string()>& work) {
  if (world.size() == 1) return {work()};
  std::vector<std::string> outcomes = world.all_gather_text(outcome_of(work), what);
  for (size_t rank = 0; rank < outcomes.size(); ++rank) {
    // Another rank may have given up waiting for this rank, for example because this process was stopped for too long.
    // The text of that rank is then empty or begins with a zero byte.
    if (outcomes[rank].empty() || outcomes[rank][0] == '\0') {
      throw CommunicationError(fmt::format("rank {}", rank), fmt::format("ended before it reported {}", what));
    }
    if (outcomes[rank][0] != kSucceeded) throw_failure(static_cast<int>(rank), outcomes[rank]);
    outcomes[rank].erase(0, 1);
  }
  return outcomes;
}

}  // namespace tessera
