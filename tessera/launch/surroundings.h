// State that a process inherits from its parent and must not trust: dispositions and masks of signals, standard
// streams.
#pragma once

namespace tessera {

// Changes the inherited state as follows. Call prepare_process() first in main, before any thread starts and any file
// is opened.
//
//   signal mask        empty: a parent that blocks signals does so for itself
//   SIGCHLD            default: if it is ignored, a process cannot learn how its children end
//   SIGPIPE, SIGXFSZ   ignored: a write that fails returns an error, which Tessera can report
//   SIGHUP, SIGINT     stay ignored if the parent ignored them, as nohup and a shell's `&` do on purpose
//   streams 0, 1, 2    open: a closed stream is opened, but refuses reads and writes. No later file gets its number
void prepare_process();

// Whether the parent wants the process to ignore this signal: SIGHUP under nohup, SIGINT in a shell's background. False
// for other signals, even if the process has inherited that they are ignored: a job script that ignores SIGTERM does so
// for itself, not to protect its children. The process may handle those signals.
bool parent_ignores(int signal);

}  // namespace tessera
