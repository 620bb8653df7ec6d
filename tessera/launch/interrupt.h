// Ctrl-C ends one piece of work instead of the process.
#pragma once

#include <signal.h>

namespace tessera {

// While an object exists, the first SIGINT is only noted. The second one ends the process with exit code 128 + SIGINT.
// Before and after, SIGINT has its usual effect. It has no effect at all if the parent ignores it
// (launch/surroundings.h). Only one object may exist at a time.
class InterruptScope {
 public:
  InterruptScope();
  ~InterruptScope();
  InterruptScope(const InterruptScope&) = delete;
  InterruptScope& operator=(const InterruptScope&) = delete;

  bool is_interrupted() const;

 private:
  struct sigaction before_ {};
};

}  // namespace tessera
