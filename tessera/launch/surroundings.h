// State that a process inherits from its parent and must not rely on: the actions for signals, the signal mask and the
// standard streams.
#pragma once

namespace tessera {

// Changes the inherited state as follows. Call prepare_process() first in main, before any thread starts and any file
// is opened.
//
//   signal mask        becomes empty: a parent that blocks signals does so for itself, not for its children
//   SIGCHLD            gets the default action: if it is ignored, a process cannot learn how its children end
//   SIGPIPE, SIGXFSZ   become ignored: a write that fails then returns an error, which Tessera can report
//   SIGHUP, SIGINT     stay ignored if the parent ignored them, as nohup and a shell's `&` do on purpose. Otherwise
//                      these signals get the default action
//   OPENBLAS_NUM_THREADS   is 1 while the shared libraries start, and then gets its inherited value again. OpenBLAS
//                      would otherwise start threads when it is loaded, and would end the process or hang if the system
//                      refuses them. Tessera uses one thread of the BLAS library per call
//   streams 0, 1, 2    a closed stream is opened, so no file that is opened later gets its number. Reads and writes on
//                      this stream fail
void prepare_process();

// Whether the parent wants the process to ignore this signal: SIGHUP under nohup, SIGINT in a shell's background. False
// for all signals except SIGHUP and SIGINT, even if the parent ignores them: a job script that ignores SIGTERM does so
// for itself, not to protect its children. The process may therefore handle such a signal.
bool parent_ignores(int signal);

}  // namespace tessera
