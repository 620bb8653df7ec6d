#include "tessera/launch/interrupt.h"

#include <unistd.h>

#include <atomic>

#include "tessera/launch/surroundings.h"

namespace tessera {
namespace {

std::atomic<bool> is_noted{false};  // a signal handler can access only static data
static_assert(std::atomic<bool>::is_always_lock_free);

void note_interrupt(int signal) {
  if (is_noted.exchange(true)) _exit(128 + signal);
}

}  // namespace

InterruptScope::InterruptScope() {
  is_noted = false;
  struct sigaction action {};
  action.sa_handler = note_interrupt;
  action.sa_flags = SA_RESTART;
  if (!parent_ignores(SIGINT)) sigaction(SIGINT, &action, &before_);
}

InterruptScope::~InterruptScope() {
  if (!parent_ignores(SIGINT)) sigaction(SIGINT, &before_, nullptr);
}

bool InterruptScope::is_interrupted() const {
  return is_noted;
}

}  // namespace tessera
