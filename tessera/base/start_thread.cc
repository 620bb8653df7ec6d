#include "tessera/base/start_thread.h"

#include <cstdio>
#include <cstdlib>
#include <exception>
#include <string>

#include "tessera/base/error.h"
#include "tessera/base/library.h"
#include "tessera/base/option_names.h"

namespace tessera::thread_start {

SignalBlock::SignalBlock() {
  sigset_t set;
  sigfillset(&set);
  for (const int fault : {SIGSEGV, SIGBUS, SIGFPE, SIGILL, SIGABRT, SIGTRAP, SIGSYS}) sigdelset(&set, fault);
  pthread_sigmask(SIG_SETMASK, &set, &before_);
}

SignalBlock::~SignalBlock() {
  pthread_sigmask(SIG_SETMASK, &before_, nullptr);
}

void refuse(const char* purpose, const std::system_error& error) {
  throw RunError(std::string("cannot start a thread for ") + purpose, error.code().message(),
                 "Raise the limit on processes (ulimit -u) or on memory (ulimit -v), or use fewer threads (" +
                     option("threads") + ")");
}

void fail() noexcept {
  if (is_library()) return keep_lost_failure(std::current_exception());
  const Failure failure = current_failure();
  std::fprintf(stderr, "error: %s\n", failure.text.c_str());
  std::_Exit(static_cast<int>(failure.code));
}

}  // namespace tessera::thread_start
