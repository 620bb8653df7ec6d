#include "tessera/launch/surroundings.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/resource.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cstddef>
#include <initializer_list>

#include "tessera/base/error.h"

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

char one_blas_thread[] = "OPENBLAS_NUM_THREADS=1";
char* lent_variable = nullptr;  // the variable whose place in the environment one_blas_thread has

// Sets OPENBLAS_NUM_THREADS to 1 until prepare_process() runs. If the variable is missing, it takes the place of the
// last variable meanwhile: the environment cannot grow, because setenv() is not ready when note_inherited() runs.
__attribute__((no_sanitize("address", "undefined", "thread"))) void lend_place(char** environment) {
  if (!environment[0]) return;
  char** place = environment;
  for (; place[1]; ++place) {
    const char *name = one_blas_thread, *variable = *place;
    for (; *variable == *name && *name != '='; ++variable) ++name;
    if (*variable == '=' && *name == '=') break;
  }
  lent_variable = *place;
  *place = one_blas_thread;
}

// Ends the program if the limit on the stack (ulimit -s) is too low. The stack of the main thread grows until this
// limit, and the stacks of all other threads get this size. The check comes before the constructors of shared
// libraries, because a very small stack is too small even for them.
__attribute__((no_sanitize("address", "undefined", "thread"))) void check_stack_limit() {
  constexpr rlim_t kLeastKib = 512;
  rlimit limit{};
  if (syscall(SYS_prlimit64, 0, RLIMIT_STACK, nullptr, &limit) != 0 || limit.rlim_cur >> 10 >= kLeastKib) return;
  static char text[] =
      "error: ulimit -s: the limit on the stack is     KiB, but Tessera needs at least 512 KiB. "
      "Raise the limit, as in: ulimit -s 8192\n";
  char* digit = text + sizeof "error: ulimit -s: the limit on the stack is    " - 2;
  for (rlim_t kib = limit.rlim_cur >> 10; kib > 0; kib /= 10) *digit-- = static_cast<char>('0' + kib % 10);
  syscall(SYS_write, STDERR_FILENO, text, sizeof text - 1);
  syscall(SYS_exit_group, static_cast<int>(ExitCode::kUsage));
}

__attribute__((no_sanitize("address", "undefined", "thread"))) void note_inherited(int, char**, char** environment) {
  check_stack_limit();
  ignores_hangup = is_ignored(SIGHUP);
  ignores_interrupt = is_ignored(SIGINT);
  lend_place(environment);
}
// note_inherited() runs before the constructors of shared libraries. Some of these constructors install signal
// handlers: for example, libfabric, which MPICH loads, installs a handler for SIGHUP. The constructor of OpenBLAS
// starts threads.
__attribute__((section(".preinit_array"), used)) void (*const kNoteInherited)(int, char**, char**) = note_inherited;

}  // namespace

void prepare_process() {
  for (char** variable = environ; *variable; ++variable) {
    if (*variable == one_blas_thread) *variable = lent_variable;
  }
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
