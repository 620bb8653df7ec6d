// Kills a child process at one of its system calls, so that tests can check the state of the files after a sudden
// death.
#pragma once

#include <sys/ptrace.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <functional>

namespace tessera {

enum class KillOutcome { killed, finished, not_permitted };

// Runs `work` in a child process. Kills the child when it enters its n-th system call (counted from 0), before the call
// has any effect. Returns `finished` if the child ended before that call, and `not_permitted` if the system does not
// permit ptrace. The parent must be single-threaded, because it calls fork().
inline KillOutcome kill_at_syscall(int n, const std::function<void()>& work) {
  const pid_t child = fork();
  if (child == 0) {
    if (ptrace(PTRACE_TRACEME, 0, nullptr, nullptr) != 0) _exit(99);
    raise(SIGSTOP);
    try {
      work();
    } catch (...) {
      _exit(98);
    }
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  if (WIFEXITED(status)) return KillOutcome::not_permitted;
  ptrace(PTRACE_SETOPTIONS, child, nullptr, PTRACE_O_TRACESYSGOOD | PTRACE_O_EXITKILL);
  for (int stops = 0; stops <= 2 * n; ++stops) {  // each call stops the child at its entry and at its exit
    ptrace(PTRACE_SYSCALL, child, nullptr, nullptr);
    waitpid(child, &status, 0);
    if (WIFEXITED(status)) return KillOutcome::finished;
  }
  kill(child, SIGKILL);
  waitpid(child, &status, 0);
  return KillOutcome::killed;
}

}  // namespace tessera
