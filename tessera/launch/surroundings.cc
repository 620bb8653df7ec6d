#include "tessera/launch/surroundings.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <initializer_list>

namespace tessera {
namespace {

bool ignores_hangup = false, ignores_interrupt = false;

// Uses the system call, because a sanitizer's own sigaction() is not ready when note_inherited() runs.
__attribute__((no_sanitize("address", "undefined", "thread"))) bool is_ignored(int signal) {
  struct {
    void (*handler)(int);
    unsigned long rest[4];  // flags, restorer, mask
  } action = {};
  constexpr size_t kMaskBytes = 8;
  return syscall(SYS_rt_sigaction, signal, nullptr, &action, kMaskBytes) == 0 && action.handler == SIG_IGN;
}

__attribute__((no_sanitize("address", "undefined", "thread"))) void note_inherited(int, char**, char**) {
  ignores_hangup = is_ignored(SIGHUP);
  ignores_interrupt = is_ignored(SIGINT);
}
// note_inherited() runs before the constructors of shared libraries, because some of these constructors install signal
// handlers. For example, libfabric, which MPICH loads, installs a handler for SIGHUP.
__attribute__((section(".preinit_array"), used)) void (*const kNoteInherited)(int, char**, char**) = note_inherited;

}  // namespace

void prepare_process() {
  for (const int stream : {STDIN_FILENO, STDOUT_FILENO, STDERR_FILENO}) {
    if (fcntl(stream, F_GETFD) != -1) continue;
    // open() takes the lowest free number, which is `stream`, because all lower numbers are in use. The file is opened
    // in the wrong direction (standard input only for writing, for example), so every use fails.
    [[maybe_unused]] const int opened = open("/dev/null", stream == STDIN_FILENO ? O_WRONLY : O_RDONLY);
  }
  signal(SIGHUP, ignores_hangup ? SIG_IGN : SIG_DFL);
  signal(SIGINT, ignores_interrupt ? SIG_IGN : SIG_DFL);
  signal(SIGCHLD, SIG_DFL);
  signal(SIGPIPE, SIG_IGN);
  signal(SIGXFSZ, SIG_IGN);
  sigset_t none;
  sigemptyset(&none);
  sigprocmask(SIG_SETMASK, &none, nullptr);
}

bool parent_ignores(int signal) {
  return (signal == SIGHUP && ignores_hangup) || (signal == SIGINT && ignores_interrupt);
}

}  // namespace tessera
